package config_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/routes"
)

func TestLoadAgent(t *testing.T) {
	const head = "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\n"
	for _, c := range []struct {
		name, file, clusterCIDR string
		ipv4, ipv6              routes.Mode
		pools                   string
		wrong                   string // in the error; empty: none
	}{
		{
			"the controller manager's file, its token out of reach",
			head + "network: cluster\ntokenFile: /run/secrets/hcloud/token\npools: [{name: a, cidr: 10.244.0.0/16}, {name: b, source: node}]\n",
			"", routes.ByCloud, routes.Natively, "10.244.0.0/16", "",
		},
		{"the network stands in the manager's environment", head, "10.244.0.0/16", routes.ByCloud, routes.Unrouted, "10.244.0.0/16", ""},
		{"kernel routes", head + "families: {ipv4: node, ipv6: node}\n", "10.244.0.0/16,fd01::/48", routes.ByNodes, routes.ByNodes, "10.244.0.0/16 fd01::/48", ""},
		{"no pools", head + "families: {ipv4: node}\n", "", routes.ByNodes, routes.Unrouted, "", ""},
		{"no file", "", "10.244.0.0/16", routes.ByCloud, routes.Unrouted, "10.244.0.0/16", ""},
		{"the masks stand in the manager's flags", head, "10.244.0.0/26,fd01::/112", routes.ByCloud, routes.Unrouted, "10.244.0.0/26 fd01::/112", ""},
		{"routes are off in the manager's flags", head, "100.64.0.0/16", routes.ByCloud, routes.Unrouted, "100.64.0.0/16", ""},
		{"IPv6 alone", head + "pools: [{name: a, source: node}]\n", "", routes.ByCloud, routes.Natively, "", ""},
		{"a mask in the file", head + "pools: [{name: a, cidr: 10.244.0.0/26, nodeMask: 24}]\n", "", "", "", "", "pools[0].nodeMask"},
		{"a mistake elsewhere in the file", head + "families: {ipv4: node}\nroutes: {limit: -1}\n", "", "", "", "", "routes.limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := "/etc/underlay/config.yaml"
			if c.file == "" {
				path = ""
			}
			node, err := config.LoadAgent(path, c.clusterCIDR, func(name string) ([]byte, error) {
				if name != path {
					t.Errorf("%s was read", name)
					return nil, fs.ErrNotExist
				}
				return []byte(c.file), nil
			})
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error %v, want %q in it", err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var pools []string
			for _, p := range node.IPAM.Pools {
				if !p.Own {
					pools = append(pools, p.Prefix.String())
				}
			}
			if node.Families != (routes.Modes{IPv4: c.ipv4, IPv6: c.ipv6}) || strings.Join(pools, " ") != c.pools {
				t.Errorf("got %+v, want %s, %s and pools %s", node, c.ipv4, c.ipv6, c.pools)
			}
		})
	}
	_, err := config.LoadAgent("/gone", "", func(string) ([]byte, error) { return nil, fs.ErrNotExist })
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that isn't there: %v", err)
	}
	if text := err.Error(); !strings.Contains(text, "--config") || strings.Contains(text, "--cloud-config") {
		t.Errorf("the agent's flag is --config, and the error says %s", text)
	}
}
