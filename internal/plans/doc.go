// Package plans holds the tests of planner safety: what the queue's statements cost, whatever the table holds and
// whatever the planner believes of it.
package plans
