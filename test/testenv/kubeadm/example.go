//go:build linux

package kubeadm

import (
	_ "embed"
	"fmt"
	"strings"
)

// onMetal is what helm makes of the example for metal, and of a pool of addresses on the segment.
// "make manifests" writes it.
//
//go:embed underlay-metal.yaml
var onMetal string

// example is the folder below deploy with the files of the cluster's installation.
func (c *Cluster) example() string {
	if c.options.Metal {
		return "kubeadm/metal-dual-stack/"
	}
	return "kubeadm/cloud-dual-stack/"
}

// metalFirst is the first machine's address in the example for metal.
const metalFirst = "192.0.2.10"

// edits put a server's addresses into the example's init.yaml or join.yaml: each text is replaced
// by the next.
func (c *Cluster) edits(name string) []string {
	first, cables := c.Servers[First].Cables.Public.IPv4, c.Servers[name].Cables
	switch {
	case c.options.Metal && name == First:
		return []string{metalFirst + ",2001:db8::10", fmt.Sprintf("%s,%s", first, cables.Public.IPv6), metalFirst, first.String()}
	case c.options.Metal:
		return []string{"192.0.2.11,2001:db8::11", fmt.Sprintf("%s,%s", cables.Public.IPv4, cables.Public.IPv6), metalFirst, first.String()}
	case name == First:
		return []string{"value: 10.0.0.2,2001:db8:0:1::1", fmt.Sprintf("value: %s,%s", cables.Private, cables.Public.IPv6)}
	}
	return []string{"value: 10.0.0.3,2001:db8:0:2::1", fmt.Sprintf("value: %s,%s", cables.Private, cables.Public.IPv6)}
}

// manifests are rendered by helm from the example's values and those of the cluster.
func (c *Cluster) manifests() (string, error) {
	if !c.options.Metal {
		return Manifests()
	}
	if !strings.Contains(onMetal, metalFirst) {
		return "", fmt.Errorf("underlay-metal.yaml has no API server at %s", metalFirst)
	}
	return strings.ReplaceAll(onMetal, metalFirst, c.Servers[First].Cables.Public.IPv4.String()), nil
}
