//go:build linux

package main

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
	addressagent "github.com/underlay-ccm/underlay/addresses/agent"
	"github.com/underlay-ccm/underlay/addresses/layer2"
	"github.com/underlay-ccm/underlay/addresses/layer2/socket"
	"github.com/underlay-ccm/underlay/routes/kernel"
)

// A cloud may route an address to any machine, and resolves it at that machine only. So each
// machine also replies for addresses that others hold by the ledger, without reporting them as its
// own, and stops when no Service has the address.
func TestARoutedSegmentRepliesForAddressesOfOtherNodes(t *testing.T) {
	n := newNeighborhood(t)
	shell(t, "ip", "route", "add", "default", "via", "10.0.0.9", "dev", "uplink")
	n.client.Run("ip", "route", "add", "198.51.100.0/24", "dev", "eth0")
	network, err := kernel.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() })
	s := newSegment(layer2.New(socket.Open, nil), network, true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, func() {}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	four, six := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:f::1")
	answers := func() bool {
		n.client.Run("ip", "neighbor", "flush", "dev", "eth0")
		n.client.Do(func() {
			if conn, err := net.Dial("udp", four.String()+":9"); err == nil {
				_, _ = conn.Write([]byte("x"))
				_ = conn.Close()
			}
		})
		var said string
		await(t, "the client has asked", func(context.Context) bool {
			said = n.client.Run("ip", "neighbor", "show", four.String(), "dev", "eth0")
			return strings.Contains(said, "lladdr") || strings.Contains(said, "FAILED")
		})
		return strings.Contains(said, "lladdr")
	}
	holds := func(want ...addresses.Hold) {
		t.Helper()
		if now := s.Status(); len(now.Held) != len(want) || len(now.Refused) != 0 {
			t.Errorf("it says %+v, want that it holds %v", now, want)
		}
	}
	both := []addresses.Assigned{{Address: four, Epoch: 3}, {Address: six, Epoch: 3}}
	s.Set(addresses.Assignment{Hold: both})
	await(t, "what it holds is held", func(context.Context) bool { return len(s.Status().Held) == 2 })
	if !answers() {
		t.Error("nobody answers for what it holds")
	}
	s.Set(addresses.Assignment{Elsewhere: []netip.Addr{four, six}})
	if !answers() {
		t.Error("nobody answers for what another node holds, and the cloud leads here")
	}
	holds()
	server := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: "hrobot://4711"}}
	s.Set(addresses.Assignment{Node: addressagent.NodeOf(server), Elsewhere: []netip.Addr{four, six}})
	if answers() {
		t.Error("a dedicated server answers, which the cloud leads nothing to")
	}
	s.Set(addresses.Assignment{Hold: both})
	await(t, "held again", func(context.Context) bool { return len(s.Status().Held) == 2 })
	s.Set(addresses.Assignment{})
	if answers() {
		t.Error("somebody answers for what no Service has")
	}
}
