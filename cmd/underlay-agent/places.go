//go:build linux

package main

import (
	"fmt"
	"net/url"
	"path/filepath"
)

// places checks the flags that name a file, a folder or a URL, and returns all mistakes. A
// relative path would depend on the working directory.
func (o *options) places() []error {
	var wrong []error
	absolute := func(flag, path string) {
		if !filepath.IsAbs(path) {
			wrong = append(wrong, fmt.Errorf("%s %q: is no absolute path; give one that begins with /", flag,
				path))
		}
	}
	absolute("--cni-conf-dir", o.cniConfDir)
	for _, dir := range o.cniBinDirs {
		absolute("--cni-bin-dir", dir)
	}
	absolute("--state-dir", o.stateDir)
	absolute("--key-dir", o.keyDir)
	absolute("--sysctls", o.sysctls)
	if o.apiServer == "" {
		return wrong
	}
	parsed, err := url.Parse(o.apiServer)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" {
		wrong = append(wrong, fmt.Errorf("--api-server %q: is no https URL with a host; give one such as https://10.0.0.2:6443", o.apiServer))
	}
	return wrong
}
