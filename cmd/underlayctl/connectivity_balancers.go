package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/connectivity"
	"github.com/underlay-ccm/underlay/internal/connectivity/probe"
)

// here is the name of this machine in results.
const here = "this machine"

// mostBalanced limits the tried addresses and ports.
const mostBalanced = 100

type machine struct {
	addresses []netip.Addr
	// routed reports whether the machine has a route to an address.
	routed func(netip.Addr) bool
}

func thisMachine() machine {
	m := machine{routed: func(a netip.Addr) bool {
		// Connecting a UDP socket looks up a route and sends no packet.
		c, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String())
		if err != nil {
			return false
		}
		return c.Close() == nil
	}}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return m
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			m.addresses = append(m.addresses, p.Addr().Unmap())
		}
	}
	return m
}

// balanced tries all load balancers from this machine. The notes list those that are not tried.
func balanced(ctx context.Context, client kubernetes.Interface, m machine, settle time.Duration) (results []connectivity.Result, notes []string) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, []string{"load balancers are not tried: " + err.Error()}
	}
	if name := m.among(nodes.Items); name != "" {
		return nil, []string{fmt.Sprintf("load balancers are not tried: this machine is Node %s, on which kube-proxy serves them", name)}
	}
	services, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, []string{"load balancers are not tried: " + err.Error()}
	}
	trials, notes := balancedTrials(services.Items, m.routed)
	if len(trials) > mostBalanced {
		notes = append(notes, fmt.Sprintf("%d of %d addresses and ports of load balancers are tried", mostBalanced, len(trials)))
		trials = trials[:mostBalanced]
	}
	for _, r := range probe.TryAll(ctx, trials, settle) {
		if r.Failure != "" && r.At.Addr().IsPrivate() {
			notes = append(notes, fmt.Sprintf("%s of Service %s is not reached from this machine (%s), which a private address need not be", r.At, r.To, r.Failure))
			continue
		}
		results = append(results, r)
	}
	return results, notes
}

// among returns the name of the Node that this machine is, empty if it is none.
func (m machine) among(nodes []corev1.Node) string {
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && slices.Contains(m.addresses, addr) {
				return n.Name
			}
		}
	}
	return ""
}

func balancedTrials(services []corev1.Service, routed func(netip.Addr) bool) (trials []connectivity.Trial, notes []string) {
	ways := map[bool]bool{} // routed, by whether the family is IPv6
	for _, s := range sortedServices(services) {
		for _, in := range s.Status.LoadBalancer.Ingress {
			addr, err := netip.ParseAddr(in.IP)
			if err != nil {
				notes = append(notes, fmt.Sprintf("Service %s/%s is not tried: its load balancer has a name and no address", s.Namespace, s.Name))
				continue
			}
			addr = addr.Unmap()
			if !routed(addr) {
				ways[addr.Is6()] = true
				continue
			}
			for _, p := range s.Spec.Ports {
				if p.Protocol == corev1.ProtocolTCP || p.Protocol == "" {
					trials = append(trials, connectivity.Trial{
						Path: connectivity.LoadBalancer, Kind: connectivity.Dial, From: here, To: s.Namespace + "/" + s.Name,
						At: netip.AddrPortFrom(addr, uint16(p.Port)),
					})
				}
			}
		}
	}
	for six, family := range map[bool]string{false: "IPv4", true: "IPv6"} {
		if ways[six] {
			notes = append(notes, "load balancers are not tried over "+family+": this machine has no way there")
		}
	}
	slices.Sort(notes)
	return trials, notes
}

func sortedServices(all []corev1.Service) []corev1.Service {
	all = slices.DeleteFunc(slices.Clone(all), func(s corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeLoadBalancer })
	slices.SortFunc(all, func(a, b corev1.Service) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return all
}
