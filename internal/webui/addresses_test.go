package webui_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui"
	"github.com/underlay-ccm/underlay/test/testenv/snapshots"
)

func servicesOf(v webui.View) (lines []string) {
	for _, s := range v.Services {
		line := fmt.Sprintf("%s %s %s %v", s.Name, s.Tone, s.State, s.Addresses)
		for _, t := range s.Targets {
			line += fmt.Sprintf(" [%s %s %s]", t.ID, t.Tone, t.State)
		}
		lines = append(lines, line)
	}
	return lines
}

// A Service leads to the nodes that hold its address, or are to.
func TestAddressesThatNodesHold(t *testing.T) {
	addressed := func() *survey.Snapshot {
		t.Helper()
		s, err := snapshots.Addressed(3)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := addressed()
	v := webui.ViewOf(s)
	const held = " ok held [192.0.2.17] [node/worker-1 ok holds 192.0.2.17]"
	expect(t, servicesOf(v), []string{
		"shop/dns bad not held [192.0.2.18] [node/worker-2 bad is to hold 192.0.2.18]",
		"shop/mail bad waits for an address []",
		"shop/shop" + held, "shop/web" + held,
	})
	if by := v.Services[3].By; by != "address of pool segment, layer2" {
		t.Errorf("by %q", by)
	}
	if why := strings.Join(v.Services[1].Why, ""); !strings.Contains(why, "every pool is full") {
		t.Errorf("why %q", why)
	}
	if bar := v.Pools[len(v.Pools)-1]; bar.Name != "segment ipv4" && bar.Name != "segment IPv4" || !strings.HasPrefix(bar.State, "2 of 4 addresses free") {
		t.Errorf("the pool: %+v", bar)
	}
	if hits, all := v.Find("192.0.2.17", 5); all != 2 || hits[0].ID != "service/shop/shop" {
		t.Errorf("found %+v", hits)
	}

	moving := addressed()
	now := metav1.NewTime(snapshots.Now().Add(-time.Second))
	moving.AddressLedger.ManagedFields[0].Time = &now
	moving.Node("control-1").Annotations = moving.Node("worker-1").Annotations
	moving.Node("worker-1").Annotations = map[string]string{addresses.ReportAnnotation: "{}"}
	for _, line := range servicesOf(webui.ViewOf(moving)) {
		want := "shop/web wait moving [192.0.2.17] [node/control-1 wait still holds 192.0.2.17] [node/worker-1 wait is to hold 192.0.2.17]"
		if strings.HasPrefix(line, "shop/web") && line != want {
			t.Errorf("moving: %s, want %s", line, want)
		}
	}

	damaged := addressed()
	damaged.AddressLedger.Data[survey.AddressLedgerKey] = "{"
	if v := webui.ViewOf(damaged); !strings.Contains(strings.Join(v.Notes, " "), "can't be read") {
		t.Errorf("a damaged ledger: %q", v.Notes)
	}
}
