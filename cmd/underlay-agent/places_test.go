//go:build linux

package main

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryWrongPlaceIsNamed(t *testing.T) {
	if wrong := defaults().places(); len(wrong) > 0 {
		t.Errorf("the defaults: %v", wrong)
	}
	o := defaults()
	o.cniConfDir, o.cniBinDirs, o.stateDir, o.sysctls = "rel", []string{"/opt", "./bin"}, "", "proc"
	o.apiServer = "10.0.0.2"
	_, err := o.settle()
	if err == nil {
		t.Fatal("settle accepted it")
	}
	for _, want := range []string{`--cni-conf-dir "rel"`, `--cni-bin-dir "./bin"`, `--state-dir ""`, `--sysctls "proc"`, `--api-server "10.0.0.2"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in: %v", want, err)
		}
	}
	if err := cleanup(t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), `--state-dir ""`) {
		t.Errorf("cleanup goes to work there: %v", err)
	}
	for url, good := range map[string]bool{
		"https://10.0.0.2:6443": true, "https://[fd00::1]:6443": true, "https://api.example": true,
		"ftp:/x": false, "http://10.0.0.2": false, "https://": false, "https://:6443": false,
	} {
		o := defaults()
		o.apiServer = url
		if err := errors.Join(o.places()...); (err == nil) != good {
			t.Errorf("%s: %v, want good %v", url, err, good)
		}
	}
}

// What the client needs is a mistake among the others.
func TestAKubeconfigThatIsNotThere(t *testing.T) {
	o := defaults()
	o.nodeName, o.kubeconfig = "", filepath.Join(t.TempDir(), "none")
	_, err := o.settle()
	if err == nil {
		t.Fatal("settle accepted it")
	}
	for _, want := range []string{"--node-name: ", `--kubeconfig "` + o.kubeconfig + `": can't be used: `, "; name a file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in: %v", want, err)
		}
	}
}

func TestTheVersionIsTheAgents(t *testing.T) {
	for args, want := range map[string]bool{"--version": true, "--version=raw": false, "": false} {
		cmd := newCommand()
		t.Cleanup(func() { _ = cmd.PersistentFlags().Set("version", "false") }) // the flag is the process'
		run, rest, err := cmd.Find(strings.Fields("run " + args))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(cmd.PersistentFlags().Set("version", "false"), run.ParseFlags(rest)); err != nil {
			t.Fatal(err)
		}
		if line, asked := versionLine(run); asked != want || !strings.HasPrefix(line, "underlay-agent v") {
			t.Errorf("%q: asked %v, %q", args, asked, line)
		}
	}
}
