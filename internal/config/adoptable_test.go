package config

import (
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func TestAdoptable(t *testing.T) {
	both := inFile("loadBalancers:\n  certificates: labelled\n  adoptable:\n" +
		"  - {name: My web, namespace: shop, service: web}\n  - {name: api, namespace: shop, service: api}\n")
	both.env = env(nil)
	config, _, err := load(t, both)
	want := []lb.Adoptable{{Name: "My web", Namespace: "shop", Service: "web"}, {Name: "api", Namespace: "shop", Service: "api"}}
	if got := config.LoadBalancers; err != nil || !slices.Equal(got.Adoptable, want) ||
		got.Certificates != lb.CertificatesLabelled {
		t.Errorf("got %+v and %s, %v; want %+v", got.Adoptable, got.Certificates, err, want)
	}
	adoptable := func(item string) setup { return inFile("loadBalancers:\n  adoptable:\n  - " + item + "\n") }
	checkMistakes(t, []mistake{
		{"none", inFile("loadBalancers: {adoptable: []}"), "loadBalancers.adoptable", "", "at least one load balancer"},
		{"no name", adoptable("{namespace: shop, service: web}"), "loadBalancers.adoptable[0].name", "", "ID or name"},
		{"no namespace", adoptable("{name: web, service: web}"), "loadBalancers.adoptable[0].namespace", "", "give it"},
		{"no Service", adoptable("{name: web, namespace: shop}"), "loadBalancers.adoptable[0].service", "", "give it"},
		{"every namespace", adoptable("{name: web, namespace: '*', service: web}"), "loadBalancers.adoptable[0].namespace", "*", "63"},
		{"typo", adoptable("{name: web, namespace: shop, service: web, svc: web}"), "loadBalancers.adoptable[0].svc", "", "name, namespace, service"},
		{"sources in IPv4", inFile("loadBalancers: {podTargetSources: ['2001:db8::/48', 192.0.2.0/24]}"), "loadBalancers.podTargetSources", "192.0.2.0/24", "IPv6"},
		{"certificates", inFile("loadBalancers: {certificates: none}"), "loadBalancers.certificates", "none", "any or labelled"},
	})
}
