//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An unusable pre-shared key is an error at the start as well.
func TestPresharedKeyFile(t *testing.T) {
	dir := t.TempDir()
	const secret = "hunter2"
	path := filepath.Join(dir, "key")
	for text, want := range map[string]string{strings.Repeat("B", 43) + "=": "", secret: "is no WireGuard key; the file is to hold"} {
		file := filepath.Join(dir, "config")
		for path, text := range map[string]string{path: text, file: "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nprovider: metal\nwireguard: always\nwireguardPresharedKeyFile: " + path + "\n"} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o := defaults()
		o.config, o.clusterCIDR, o.nodeName, o.apiServer = file, "10.244.0.0/16", "node-1", "https://192.0.2.9:6443"
		s, err := o.settle() // an error in any case: there is no kubeconfig
		got := err.Error()
		if strings.Contains(got, "wireguardPresharedKeyFile "+path) != (want != "") || !strings.Contains(got, want) || strings.Contains(got, secret) {
			t.Errorf("%v, want %q", err, want)
		}
		if want == "" && s.preshared.Reveal() != text {
			t.Error("another key is used")
		}
	}
}

// An unusable password is an error at the start, which stops a rollout, and its text is in no
// error.
func TestPasswordsOfRouters(t *testing.T) {
	dir := t.TempDir()
	const secret = "hunter2"
	for name, text := range map[string]string{"good": secret + "\n", "empty": "\n", "lines": secret + "\nmore\n", "long": strings.Repeat(secret, 12)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, rest, want string }{
		{"good", "", ""},
		{"missing", "", "no such file"},
		{"missing", ", nodeSelector: rack=1", ""}, // this node may be in another rack
		{"empty", "", "is empty"},
		{"empty", ", nodeSelector: rack=1", "is empty"},
		{"lines", "", "line break"},
		{"long", "", "80"},
		{"", "", "is a directory"},
	} {
		file := filepath.Join(dir, "config-"+c.name)
		path := filepath.Join(dir, c.name)
		text := "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nprovider: metal\naddresses:\n" +
			"  pools: [{name: a, ranges: [203.0.113.7], mover: bgp}]\n" +
			"  bgp: {asn: 64512, peers: [{name: r, address: 192.0.2.1, asn: 64500, passwordFile: " + path + c.rest + "}]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := defaults()
		o.config, o.clusterCIDR, o.nodeName, o.apiServer = file, "10.244.0.0/16", "node-1", "https://192.0.2.9:6443"
		_, err := o.settle()
		got := ""
		if err != nil {
			got = err.Error()
		}
		about := strings.Contains(got, "addresses.bgp.peers[0].passwordFile "+path)
		if about != (c.want != "") || !strings.Contains(got, c.want) || strings.Contains(got, secret) {
			t.Errorf("%s%s: %v, want %q", c.name, c.rest, err, c.want)
		}
	}
}
