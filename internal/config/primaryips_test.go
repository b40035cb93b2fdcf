package config

import (
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func TestPrimaryIPs(t *testing.T) {
	both := inFile("loadBalancers:\n  primaryIPs:\n" +
		"  - {name: My web, namespace: shop, service: web}\n  - {name: 4711, namespace: shop, service: api}\n")
	both.env = env(nil)
	config, _, err := load(t, both)
	want := []lb.GivenAddress{{Name: "My web", Namespace: "shop", Service: "web"}, {Name: "4711", Namespace: "shop", Service: "api"}}
	if got := config.LoadBalancers.PrimaryIPs; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	given := func(item string) setup { return inFile("loadBalancers:\n  primaryIPs:\n  - " + item + "\n") }
	checkMistakes(t, []mistake{
		{"none", inFile("loadBalancers: {primaryIPs: []}"), "loadBalancers.primaryIPs", "", "at least one primary IP"},
		{"no name", given("{namespace: shop, service: web}"), "loadBalancers.primaryIPs[0].name", "", "ID or name"},
		{"no namespace", given("{name: web, service: web}"), "loadBalancers.primaryIPs[0].namespace", "", "give it"},
		{"no Service", given("{name: web, namespace: shop}"), "loadBalancers.primaryIPs[0].service", "", "give it"},
		{"every Service", given("{name: web, namespace: shop, service: '*'}"), "loadBalancers.primaryIPs[0].service", "*", "63"},
		{"typo", given("{name: web, namespace: shop, service: web, id: 1}"), "loadBalancers.primaryIPs[0].id", "", "name, namespace, service"},
	})
}
