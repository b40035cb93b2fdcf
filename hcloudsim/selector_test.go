package hcloudsim_test

import (
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func TestLabelSelectors(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	for name, labels := range map[string]map[string]string{
		"a": {"env": "prod", "tier": "web"},
		"b": {"env": "test", "example.com/x": ""},
		"c": {"env": "prod"},
		"d": nil,
	} {
		seedServer(t, sim, hcloudsim.ServerSeed{Name: name, Labels: labels})
	}
	tests := []struct{ selector, want string }{
		{"", "abcd"},
		{"env", "abc"},
		{"!env", "d"},
		{"! env", "d"},
		{"env=prod", "ac"},
		{"env==prod", "ac"},
		{" env = prod ", "ac"},
		{"env!=prod", "bd"},
		{"env in (prod,test)", "abc"},
		{"env in (prod, test),tier", "a"},
		{"env notin (prod)", "bd"},
		{"env notin (prod,test)", "d"},
		{"env=prod,!tier", "c"},
		{"example.com/x=", "b"},
		{"example.com/x", "b"},
		{"env=", ""},
		{",", "refused"},
		{"env,", "refused"},
		{"env in", "refused"},
		{"env in ()", ""},
		{"env in (a", "refused"},
		{"env = a b", "refused"},
		{"-", "refused"},
		{"a/b/c", "refused"},
		{"/b", "refused"},
		{"UPPER.com/b", "refused"},
	}
	for _, test := range tests {
		t.Run(test.selector, func(t *testing.T) {
			servers, err := client(sim).Server.AllWithOpts(t.Context(), hcloud.ServerListOpts{
				ListOpts: hcloud.ListOpts{LabelSelector: test.selector}, Sort: []string{"name"},
			})
			if test.want == "refused" {
				wantCode(t, err, "invalid_input")
				return
			}
			noError(t, err)
			var got string
			for _, s := range servers {
				got += s.Name
			}
			if got != test.want {
				t.Errorf("selects %q, want %q", got, test.want)
			}
		})
	}
}
