package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
)

// offer puts programs into a folder that are configured for this cluster and its cloud, so that
// users need no flags: kubectl, underlayctl, also as kubectl underlay, and cloud, which is curl
// with the cloud's address before its first argument. The token stays in its file.
func (d *demo) offer(ctx context.Context) (folder string, err error) {
	kube, err := kubebinary.Path(ctx, d.out)
	if err != nil {
		return "", err
	}
	dir := d.cluster.ControlPlane.Dir()
	programs := filepath.Join(dir, "programs")
	folder = filepath.Join(dir, "bin")
	for _, made := range []string{programs, folder} {
		if err := os.MkdirAll(made, 0o700); err != nil {
			return "", fmt.Errorf("making a folder for programs: %w", err)
		}
	}
	// The program's name shows that kubectl calls it.
	plugin := filepath.Join(programs, "kubectl-underlay")
	if err := os.Symlink(d.reader, plugin); err != nil {
		return "", fmt.Errorf("naming the plugin: %w", err)
	}
	kubeconfig := d.cluster.ControlPlane.AdminKubeconfig()
	settings := readerFlags(d.cluster)
	for name, line := range map[string]string{
		"kubectl":          "KUBECONFIG=${KUBECONFIG:-" + quoted(kubeconfig) + "} exec " + quoted(kube, "kubectl"),
		"underlayctl":      "exec " + quoted(append([]string{d.reader}, settings...)...),
		"kubectl-underlay": "exec " + quoted(append([]string{plugin}, settings...)...),
		"cloud": fmt.Sprintf(`path=$1; shift; exec curl -sS -H "Authorization: Bearer $(cat %s)" -H 'Content-Type: application/json' %s"$path"`,
			quoted(d.cluster.TokenFile()), quoted(d.cluster.CloudURL)),
	} {
		script := "#!/bin/sh\n" + line + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(folder, name), []byte(script), 0o700); err != nil {
			return "", fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return folder, nil
}

// quoted are words for a shell.
func quoted(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(out, " ")
}
