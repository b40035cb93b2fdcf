package inside_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

func newCredentials(t testing.TB, server string) inside.Credentials {
	t.Helper()
	c, err := inside.NewCredentials(server)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clientFile is what stands in a client's file.
type clientFile struct{ Server, Certificate, Key string }

func clientFileOf(t testing.TB, c inside.Credentials) clientFile {
	t.Helper()
	var f clientFile
	if err := json.Unmarshal(c.ClientFile(), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestUserDataHasRoom(t *testing.T) {
	name := strings.Repeat("n", 63) // the longest that a server can have
	data := inside.UserData(newCredentials(t, name), inside.Lifetime)
	if len(data) > inside.UserDataLimit {
		t.Errorf("%d bytes, want at most %d", len(data), inside.UserDataLimit)
	}
	t.Logf("%d bytes", len(data))
	if !strings.HasPrefix(data, "#!/usr/bin/env python3\n") {
		t.Errorf("begins with %q: cloud-init runs only scripts that name their interpreter", data[:40])
	}
	for _, want := range []string{name, `"lifetime":3600`, `"port":8443`} {
		if !strings.Contains(data, want) {
			t.Errorf("%q isn't in it", want)
		}
	}
}

func TestCredentialsDiffer(t *testing.T) {
	a, b := clientFileOf(t, newCredentials(t, "a")), clientFileOf(t, newCredentials(t, "a"))
	if a.Key == b.Key || a.Certificate == b.Certificate {
		t.Error("two servers have the same key or certificate")
	}
	if len(a.Key) < 32 {
		t.Errorf("the key has %d characters", len(a.Key))
	}
}

func TestCredentialsPrintAsTheServer(t *testing.T) {
	c := newCredentials(t, "a1")
	file := clientFileOf(t, c)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "with", c, "in", struct{ C inside.Credentials }{c})
	encoded, err := json.Marshal(map[string]any{"c": c})
	if err != nil {
		t.Fatal(err)
	}
	printed := fmt.Sprintf("%v %+v %#v %s %q %x %d", c, c, c, c, c, &c, []inside.Credentials{c}) + log.String() + string(encoded)
	if !strings.Contains(printed, "credentials of a1") {
		t.Errorf("prints as %s", printed)
	}
	for what, secret := range map[string]string{"key": file.Key, "certificate": "BEGIN", "bytes of it": "[45 45 45"} {
		if strings.Contains(printed, secret) {
			t.Errorf("the %s is printed: %s", what, printed)
		}
	}
}

func TestClientFiles(t *testing.T) {
	c := newCredentials(t, "mine")
	read, err := inside.ParseClientFile(c.ClientFile())
	if err != nil {
		t.Fatal(err)
	}
	if read.Server() != "mine" || !bytes.Equal(read.ClientFile(), c.ClientFile()) {
		t.Errorf("read as %s, of server %q", read.ClientFile(), read.Server())
	}
	if bytes.Contains(c.ClientFile(), []byte("PRIVATE")) {
		t.Error("the certificate's key is in the client's file")
	}
	valid := clientFileOf(t, c)
	tests := map[string]struct {
		change func(*clientFile)
		want   string
	}{
		"no server":      {func(f *clientFile) { f.Server = "" }, `"server"`},
		"no key":         {func(f *clientFile) { f.Key = "" }, `"key"`},
		"no certificate": {func(f *clientFile) { f.Certificate = "" }, `"certificate"`},
		"another thing":  {func(f *clientFile) { f.Certificate = "certified" }, `"certificate"`},
	}
	for name, test := range tests {
		f := valid
		test.change(&f)
		text, _ := json.Marshal(map[string]string{"server": f.Server, "certificate": f.Certificate, "key": f.Key})
		_, err := inside.ParseClientFile(text)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), valid.Key) {
			t.Errorf("%s: error %v, want one about %s", name, err, test.want)
		}
	}
	if _, err := inside.ParseClientFile([]byte("#!/bin/sh")); err == nil {
		t.Error("a script is read as a client's file")
	}
}
