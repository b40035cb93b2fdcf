package cloud_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodehelpers "k8s.io/cloud-provider/node/helpers"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

func TestDedicatedMetadata(t *testing.T) {
	i, _ := mixed(&project{servers: []cloud.Machine{}}, &cloud.Machines{Robot: &account{servers: []cloud.Machine{dedicated(7, "at-robot")}}})
	got, err := i.InstanceMetadata(t.Context(), node("bm", withID("hrobot://7")))
	if err != nil {
		t.Fatal(err)
	}
	if got.InstanceType != "AX41-NVMe" || got.Zone != "fsn1-dc14" || got.Region != "fsn1" || got.AdditionalLabels["instance.hetzner.cloud/provided-by"] != "robot" {
		t.Errorf("%+v", got)
	}
	i.Gated = true
	if _, err := i.InstanceMetadata(t.Context(), node("bm", withID("hrobot://7"))); err == nil {
		t.Error("a Node without the condition was described")
	}
}

func TestDedicatedAddresses(t *testing.T) {
	inNetwork, anywhere, nowhere := netip.MustParsePrefix("10.0.0.0/8"), netip.Prefix{}, netip.MustParsePrefix("0.0.0.0/32")
	established := func(name, ip string) *corev1.Node { return node(name, withID("hrobot://8"), withIP(ip)) }
	for _, c := range []struct {
		name    string
		family  cloud.AddressFamily
		given   string
		network netip.Prefix // the zero one: none, addresses are forwarded; nowhere: none, they aren't
		want    string       // addresses, or part of the error
	}{
		{"nothing given", cloud.IPv4, "", inNetwork, "Hostname=bm ExternalIP=198.51.100.7"},
		{"IPv6", cloud.IPv6, "", inNetwork, "Hostname=bm ExternalIP=2001:db8:d:7::1"},
		{"both", cloud.DualStack, "", inNetwork, "Hostname=bm ExternalIP=198.51.100.7 ExternalIP=2001:db8:d:7::1"},
		{"in the network", cloud.DualStack, "10.0.1.7", inNetwork, "Hostname=bm ExternalIP=198.51.100.7 ExternalIP=2001:db8:d:7::1 InternalIP=10.0.1.7"},
		{"in the network and its own IPv6", cloud.IPv4, "10.0.1.7,2001:db8:d:7::7", inNetwork, "Hostname=bm ExternalIP=198.51.100.7 InternalIP=10.0.1.7 InternalIP=2001:db8:d:7::7"},
		{"its main address", cloud.IPv6, "198.51.100.7", inNetwork, "Hostname=bm ExternalIP=198.51.100.7"},
		{"another of its addresses", cloud.IPv4, "203.0.113.7", inNetwork, "Hostname=bm ExternalIP=203.0.113.7"},
		{"outside the network", cloud.IPv4, "192.168.0.7", inNetwork, "outside the network's range 10.0.0.0/8"},
		{"local IPv6", cloud.IPv4, "10.0.1.7,fd00::7", inNetwork, "fd00::7 lies outside"},
		{"a cloud server's", cloud.IPv4, "10.0.0.2", inNetwork, "the address of cloud server hcloud://1"},
		{"a cloud server's alias", cloud.IPv4, "10.0.0.20", inNetwork, "the address of cloud server hcloud://1"},
		{"another Node's", cloud.IPv4, "10.0.1.8", inNetwork, "the address of Node other"},
		{"one that a newcomer claims too", cloud.IPv4, "10.0.1.9", inNetwork, "Hostname=bm ExternalIP=198.51.100.7 InternalIP=10.0.1.9"},
		{"another dedicated server's", cloud.IPv4, "10.0.1.88", inNetwork, "an address of dedicated server 8"},
		{"somebody's public address", cloud.IPv4, "192.0.2.99", inNetwork, "no address of dedicated server 7"},
		{"without a network", cloud.IPv4, "192.168.0.7", anywhere, "Hostname=bm ExternalIP=198.51.100.7 InternalIP=192.168.0.7"},
		{"without a network, not forwarded", cloud.IPv4, "192.168.0.7", nowhere, "robot.forwardInternalIPs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := server(1, "a", "10.0.0.2")
			s.AliasIPs = []netip.Addr{netip.MustParseAddr("10.0.0.20")}
			newcomer := node("newcomer", withTaints("node.cloudprovider.kubernetes.io/uninitialized"), withIP("10.0.1.9"))
			i, _ := mixed(&project{servers: []cloud.Machine{s}}, &cloud.Machines{
				Robot:      &account{servers: []cloud.Machine{dedicated(7, "bm"), dedicated(8, "bn")}},
				Configured: []cloud.Machine{{ID: 8, Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.88")}}},
			}, established("other", "10.0.1.8"), newcomer)
			i.Family, i.InNetwork = c.family, c.network == inNetwork
			if !i.InNetwork {
				i.NetworkRange, i.ForwardPrivate = nil, c.network == anywhere
			}
			n := node("bm", withID("hrobot://7"), withAnnotation(c.given))
			n.CreationTimestamp = metav1.Unix(2000, 0)
			m, events := reported(i, n)
			got, err := m.InstanceMetadata(t.Context(), n)
			if err != nil {
				if e := shown(events); !strings.Contains(err.Error(), c.want) || e != "AddressMismatch" {
					t.Errorf("%v, Events %q; want %q and AddressMismatch", err, e, c.want)
				}
				return
			}
			kept := got.NodeAddresses
			if c.given != "" { // upstream's treatment of the addresses
				if kept, err = nodehelpers.GetNodeAddressesFromNodeIP(c.given, kept); err != nil {
					t.Fatal(err)
				}
			}
			var is []string
			for _, a := range kept {
				is = append(is, string(a.Type)+"="+a.Address)
			}
			if !slices.Equal(slices.Sorted(slices.Values(is)),
				slices.Sorted(slices.Values(strings.Fields(c.want)))) {
				t.Errorf("%q, want %q", is, c.want)
			}
		})
	}
}
