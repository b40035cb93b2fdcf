package config

import (
	"reflect"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func TestShared(t *testing.T) {
	both := inFile("loadBalancers:\n  shared:\n  - {name: edge, namespaces: [shop, blog]}\n  - {name: inner, namespaces: [shop]}\n")
	both.env = env(nil)
	config, _, err := load(t, both)
	want := []lb.SharedName{{Name: "edge", Namespaces: []string{"shop", "blog"}}, {Name: "inner", Namespaces: []string{"shop"}}}
	if got := config.LoadBalancers.Shared; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	shared := func(item string) setup { return inFile("loadBalancers:\n  shared:\n  - " + item + "\n") }
	checkMistakes(t, []mistake{
		{"none", inFile("loadBalancers: {shared: []}"), "loadBalancers.shared", "", "at least one load balancer"},
		{"no name", shared("{namespaces: [shop]}"), "loadBalancers.shared[0].name", "", "give it"},
		{"no label", shared("{name: a.b, namespaces: [shop]}"), "loadBalancers.shared[0].name", "a.b", "63"},
		{"no namespaces", shared("{name: edge}"), "loadBalancers.shared[0].namespaces", "", "give it"},
		{"no namespace", shared("{name: edge, namespaces: []}"), "loadBalancers.shared[0].namespaces", "", "at least one"},
		{"every namespace", shared("{name: edge, namespaces: ['*']}"), "loadBalancers.shared[0].namespaces", "*", "63"},
		{"one namespace", shared("{name: edge, namespaces: shop}"), "loadBalancers.shared[0].namespaces", "", "a list"},
		{"twice", shared("{name: edge, namespaces: [shop]}\n  - {name: edge, namespaces: [blog]}"), "loadBalancers.shared[1].name", "edge", "one item"},
	})
}
