package snapshots

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
)

// Addressed is a healthy cluster of count Nodes, at least three, with addresses held by nodes:
// shop/web and shop/shop share one that worker-1 holds, no node holds that of shop/dns, and
// shop/mail waits for one.
func Addressed(count int) (*survey.Snapshot, error) {
	s, err := Healthy(count)
	if err != nil {
		return nil, err
	}
	segment, err := addresses.ParseRange("192.0.2.16-192.0.2.19")
	if err != nil {
		return nil, fmt.Errorf("the pool of the snapshot: %w", err)
	}
	s.Config.Addresses.Pools = []config.AddressPool{{
		Pool: addresses.Pool{Name: "segment", Ranges: []addresses.Range{segment}}, Mover: addresses.Layer2,
	}}
	shares := map[string][]addresses.Share{}
	for name, address := range map[string]string{"web": "192.0.2.17", "shop": "192.0.2.17", "dns": "192.0.2.18", "mail": ""} {
		svc := service(s, "shop", name, 80)
		svc.Spec.LoadBalancerClass = ptr.To("underlay.dev/address")
		if address == "" {
			accepted(svc, metav1.ConditionFalse, "AddressPoolExhausted", "every pool is full: add addresses")
			continue
		}
		accepted(svc, metav1.ConditionTrue, "Accepted", "")
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		shares[address] = append(shares[address], addresses.Share{
			UID: string(svc.UID), Namespace: svc.Namespace, Name: svc.Name, Key: "one",
			Ports: []addresses.Port{{Protocol: "TCP", Number: 80 + len(shares[address])}},
		})
	}
	slices.SortFunc(s.Services, func(a, b *corev1.Service) int {
		return slices.Compare([]string{a.Name}, []string{b.Name})
	})
	ledger, err := json.Marshal(map[string]any{"version": 1, "addresses": []addresses.Entry{
		{Address: netip.MustParseAddr("192.0.2.17"), Holder: "worker-1", Epoch: 3, Shares: shares["192.0.2.17"]},
		{Address: netip.MustParseAddr("192.0.2.18"), Holder: "worker-2", Epoch: 1, Shares: shares["192.0.2.18"]},
	}})
	if err != nil {
		return nil, fmt.Errorf("the ledger of the snapshot: %w", err)
	}
	s.AddressLedger = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			ManagedFields: []metav1.ManagedFieldsEntry{{Time: ptr.To(ago(time.Hour))}},
		},
		Data: map[string]string{addresses.LedgerKey: string(ledger)},
	}
	for _, n := range s.Nodes {
		var report addresses.Report
		if n.Name == "worker-1" {
			report.Held = []addresses.Hold{{Address: netip.MustParseAddr("192.0.2.17"), Epoch: 3}}
		}
		text, err := report.MarshalText()
		if err != nil {
			return nil, fmt.Errorf("the report of %s: %w", n.Name, err)
		}
		n.Annotations = map[string]string{addresses.ReportAnnotation: string(text)}
	}
	return s, nil
}
