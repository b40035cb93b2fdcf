package lb_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

var update = flag.Bool("update", false, "write the generated document instead of comparing it")

const documentPath = "../docs/reference/annotations.md"

// TestDocument keeps docs/reference/annotations.md equal to the table that Parse reads. To update
// it: go test ./lb -run TestDocument -update.
func TestDocument(t *testing.T) {
	want := rendered()
	if *update {
		if err := os.WriteFile(documentPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentPath)
	if err != nil || string(got) != want {
		t.Errorf("the document differs from the table (%v); run: go test ./lb -run TestDocument -update", err)
	}
}

func rendered() string {
	var b strings.Builder
	b.WriteString(documentIntro)
	for _, prefix := range []string{lb.HetznerPrefix, lb.OwnPrefix} {
		fmt.Fprintf(&b, "\n## `%s…`\n\n| name | type | range | default | effect |\n|---|---|---|---|---|\n", prefix)
		for _, row := range lb.Annotations() {
			if name, ok := strings.CutPrefix(row.Name, prefix); ok {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, row.Type, cell(row.Range), cell(row.Default), cell(row.Effect))
			}
		}
	}
	b.WriteString(portsIntro)
	for _, row := range lb.PortOptions() {
		name := strings.TrimPrefix(strings.TrimPrefix(row.Name, lb.HetznerPrefix), lb.OwnPrefix)
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` |\n", row.Option, row.Type, cell(row.Range), name)
	}
	b.WriteString(documentEnd)
	return b.String()
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`).Replace(text)
}

const documentIntro = `<!-- Generated from the table in lb by "go test ./lb -run TestDocument -update". Do not edit. -->

# Annotations of Services

Annotations of a Service of type LoadBalancer say what its load balancer is. Most names are those of the Hetzner cloud controller manager and mean what they mean there. Defaults are the built-in ones; the configuration may hold others (see [configuration](configuration.md)).

An annotation that is removed, or left empty, resets what it set. Durations are whole seconds, written as a number (` + "`15`" + `) or as in Go (` + "`15s`, `1m`" + `). A value that cannot be used keeps a new load balancer from being created and leaves an existing one as it is, but for its targets and the node ports that it leads to; the Service's condition ` + "`underlay.dev/Accepted`" + ` and an Event name annotation, value and remedy. An annotation that has no effect beside the others, or a name that nobody knows, is noted in the same places and stops nothing.
`

const portsIntro = `
## Options of a port

` + "`underlay.dev/ports`" + ` is a JSON object. Its keys are ports of the Service, by number or by name, its values objects of the options below; those with a dot in their path are in an object of their own:

` + "```yaml" + `
metadata:
  annotations:
    underlay.dev/ports: |
      {
        "443":  {"protocol": "https", "certificates": ["web"]},
        "25":   {"proxyProtocol": true},
        "8080": {"healthCheck": {"protocol": "http", "path": "/ready", "interval": "5s"}}
      }
` + "```" + `

For what is left out of a port, the annotation in the last column counts, or its default. An option that nobody knows, a port that the Service does not have, and a value that cannot be used refuse the Service, as a wrong annotation does. ` + "`healthCheck.mode`" + ` also sets aside what annotations say of what to check. A load balancer that was taken over keeps all its health checks (` + "`HealthCheckKept`" + `) until ` + "`health-check`" + ` is set for all ports, or each port says what to check.

| option | type | range | for all ports |
|---|---|---|---|
`

const documentEnd = `
` + "`id`, `ipv4` and `ipv6` below `load-balancer.hetzner.cloud/`" + ` are reserved names without effect.
`
