//go:build linux

package main

import (
	"errors"
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
