// Package outboxtest helps to test what plugs into package outbox.
//
// To test a handler or a registry, fill a [Memory] store with rows, run a worker on it, and look at the rows
// afterwards; [Recorder] stands in for handlers that are not under test.
//
// To test a store of your own, hand it to [TestStore]: one suite, a case per clause of the store's contract, which
// [Memory] and PostgreSQL's store both pass.
//
// The package imports the standard library and package outbox only.
//
// Maturity: experimental, like package outbox. Cases may be added in minor versions: a store that passed before may
// then fail for a clause that it never kept.
package outboxtest
