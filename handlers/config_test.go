package handlers_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/handlers"
)

func TestNewHTTPReportsEveryFaultAndShowsNoSecret(t *testing.T) {
	t.Parallel()
	_, err := handlers.NewHTTP(handlers.HTTPConfig{
		URL:          "ftp://user:hunter2@:99999/path?token=hunter2#hunter2",
		Secrets:      []string{"hunter2", secretOf(24), "whsec_hunter2"},
		AllowPrivate: []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.1/8"), netip.MustParsePrefix("::ffff:10.0.0.0/104")},
		MaxIdleConns: -1,
		UserAgent:    "a\r\nb: hunter2",
		AllowPorts:   []handlers.Ports{{}, {First: 8000, Last: 8999}, {First: 2, Last: 1}},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"url: ", "scheme", "host", "port", "user information", "fragment", "secrets[0]: ", "secrets[2]: ",
		"allow_private[0]: ", "allow_private[1]: ", "takes 10.0.0.0/8", "allow_private[2]: ", "max idle conns: -1", "user agent: ",
		"allow_ports[0]: 0, takes", "allow_ports[2]: 2-1, takes",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "secrets[1]") || strings.Contains(err.Error(), "allow_ports[1]") {
		t.Errorf("error shows too much:\n%v", err)
	}
	var field *handlers.FieldError
	if !errors.As(err, &field) || field.Field != "url" {
		t.Errorf("first fault %v, want a FieldError of url", field)
	}
}

func TestNewHTTPJudgesURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://example.com":                 "",
		"https://example.com:443/a?b=c":       "",
		"https://example.com:/":               "",
		"https://example.com:8443/a?b=c":      "has a port that is not allowed, takes 443 (allow_ports",
		"https://example.com:80/":             "has a port that is not allowed, takes 443 (allow_ports",
		"https://example.com:0443/":           "",
		"https://[2001:4860::1]:443/":         "",
		"HTTPS://example.com":                 "",
		"":                                    "missing",
		"http://example.com":                  "takes https",
		"example.com":                         "scheme",
		"//example.com":                       "scheme",
		"https:example.com":                   "host",
		"https:///path":                       "host",
		"https://:443/":                       "host",
		"https://example.com:0/":              "port",
		"https://example.com:65536/":          "port",
		"https://example.com:port/":           "parsed",
		"https://user@example.com/":           "user information",
		"https://example.com/#f":              "fragment",
		"https://example.com/\n":              "parsed",
		" https://example.com/":               "parsed",
		"https://exa mple.com/":               "parsed",
		"https://example.com/%zz":             "parsed",
		"javascript:alert(1)//https://a.test": "scheme",
	} {
		_, err := handlers.NewHTTP(handlers.HTTPConfig{URL: text})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestNewHTTPTakesTheAllowedPorts(t *testing.T) {
	t.Parallel()
	listed := handlers.HTTPConfig{AllowPorts: []handlers.Ports{{First: 8443, Last: 8443}, {First: 9000, Last: 9010}}}
	plain := handlers.HTTPConfig{AllowHTTP: true}
	for _, test := range []struct {
		config handlers.HTTPConfig
		url    string
		want   bool
	}{
		{listed, "https://example.com:8443", true},
		{listed, "https://example.com:9005", true},
		{listed, "https://example.com", true},
		{listed, "https://example.com:9011", false},
		{listed, "https://example.com:80", false},
		{plain, "http://example.com", true},
		{plain, "http://example.com:443", true},
		{plain, "https://example.com:80", true},
		{plain, "http://example.com:8080", false},
	} {
		test.config.URL = test.url
		if _, err := handlers.NewHTTP(test.config); (err == nil) != test.want {
			t.Errorf("%s: %v, want accepted %t", test.url, err, test.want)
		}
	}
}
