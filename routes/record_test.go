package routes_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/underlay-ccm/underlay/routes"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	record := routes.Record{
		route("10.244.1.0/24", "10.0.0.2"): true,
		route("10.244.2.0/24", "10.0.0.3"): true,
		route("10.244.2.0/24", "10.0.0.4"): true, // while the gateway is changed
		route("fd00:1::/64", "fd00::2"):    true,
	}
	text := record.Text()
	want := map[string]string{"10.244.1.0_24": "10.0.0.2", "10.244.2.0_24": "10.0.0.3 10.0.0.4", "fd00-1--_64": "fd00::2"}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
	if again, err := routes.ParseRecord(text); err != nil || !maps.Equal(again, record) {
		t.Errorf("read again it is %v, %v", again, err)
	}
}

// An invalid entry doesn't affect the others.
func TestAnEntryThatCantBeReadIsNamed(t *testing.T) {
	record, err := routes.ParseRecord(map[string]string{
		"10.244.1.0_24": "10.0.0.2", "10.244.2.0": "10.0.0.3", "10.244.3.0_24": "10.0.0.4 here",
	})
	want := routes.Record{route("10.244.1.0/24", "10.0.0.2"): true, route("10.244.3.0/24", "10.0.0.4"): true}
	if !maps.Equal(record, want) {
		t.Errorf("it holds %v, want %v", record, want)
	}
	for _, part := range []string{`"10.244.2.0"`, `"10.244.3.0_24"`, `"here"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v doesn't name %s", err, part)
		}
	}
}

// A list of the table from before a node existed proves nothing about the node.
func TestAnUnseenNodeIsNotReachable(t *testing.T) {
	n := node("a", "10.244.1.0/24", "10.0.0.2", 1)
	n.Unseen = true
	have := []routes.Route{route("10.244.1.0/24", "10.0.0.2")}
	w := routes.Desired([]routes.Node{n}, pods())
	v := routes.NodeStatuses([]routes.Node{n}, have, w, routes.Diff(w, ownership(have, pods())))["a"]
	if v.Reachable || !v.LookAgain || !v.Unproved || v.Message == "" {
		t.Errorf("got %+v, want that only another look can tell", v)
	}
	n.Dsts = nil
	if v := routes.NodeStatuses([]routes.Node{n}, have, routes.Desired([]routes.Node{n}, pods()), routes.Plan{})["a"]; !v.Reachable {
		t.Errorf("a node that needs no route: %+v", v)
	}
}
