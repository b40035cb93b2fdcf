package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

func TestMeasureProgram(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program.py")
	called := func(args ...string) (said string, err error) {
		var out bytes.Buffer
		err = run(t.Context(), append([]string{"measure", "program"}, args...), &out, &out)
		return out.String(), err
	}
	if said, err := called("--out", program); err != nil || !strings.Contains(said, "python3 program.py") {
		t.Fatalf("%v: %s", err, said)
	}
	for _, name := range []string{program, program + ".key"} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; nobody else may read it", name, info, err)
		}
	}
	script, _ := os.ReadFile(program)
	if !bytes.HasPrefix(script, []byte("#!")) || !bytes.Contains(script, []byte(`"lifetime":3600`)) {
		t.Errorf("the program begins with %.40q", script)
	}
	key, _ := os.ReadFile(program + ".key")
	if _, err := inside.ParseClientFile(key); err != nil {
		t.Error(err)
	}
	if bytes.Contains(key, []byte("PRIVATE KEY")) {
		t.Error("the key file has what only the server needs")
	}

	other := filepath.Join(dir, "other.py")
	wrong := map[string][]string{
		"--out is empty":             nil,
		"the file exists; remove it": {"--out", program},
		"--key names the file":       {"--out", other, "--key", other},
		"must be between":            {"--out", other, "--lifetime", "10s"},
		"no such file or directory":  {"--out", filepath.Join(dir, "no", "program.py")},
		"--key " + program + ": the": {"--out", other, "--key", program},
	}
	for says, args := range wrong {
		if _, err := called(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v; want %q", args, err, says)
		}
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("a program without its key was left")
	}
	if again, _ := os.ReadFile(program); !bytes.Equal(again, script) {
		t.Error("a file that was there has been changed")
	}
}

func TestDedicatedFlags(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.7": "203.0.113.7:8443", "203.0.113.7:99": "203.0.113.7:99", "2001:db8::7": "[2001:db8::7]:8443", "[2001:db8::7]:99": "[2001:db8::7]:99",
		"host.example": "", "203.0.113.7/32": "",
	} {
		d := dedicatedFlags{address: text}
		at, err := d.at()
		if (err != nil) != (want == "") || err == nil && at.String() != want {
			t.Errorf("--dedicated %s: %s, %v, want %q", text, at, err, want)
		}
	}
}
