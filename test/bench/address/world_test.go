//go:build linux

package address_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

const (
	// patience limits waits.
	patience = 2 * time.Minute
	// grace is how long a Node may be unresponsive before it is marked as lost: upstream's value,
	// not that of tests.
	grace = 50 * time.Second

	addressRange = "192.0.2.100-192.0.2.109"
	talkPort     = 81
)

// world is a lab with one contender, and a Service with clients on the segment.
type world struct {
	b         *testing.B
	contender contender
	lab       *netlab.Lab
	machines  []*netlab.Machine
	pods      map[string]*netlab.Pod // by machine
	// client keeps its neighbor cache, fresh empties it repeatedly.
	client, fresh *netlab.Neighbor
	frames        *netlab.Frames
	address       netip.Addr
}

// begin starts everything and waits until the client gets replies.
func begin(b *testing.B, c contender) *world {
	b.Helper()
	w := open(b, c)
	w.serve()
	return w
}

// open is begin without a Service.
func open(b *testing.B, c contender) *world {
	b.Helper()
	w := &world{b: b, contender: c, pods: map[string]*netlab.Pod{}}
	o := netlab.Options{
		Metal: true, Machines: []string{"one", "two", "three"}, Dir: b.TempDir(), NodeGrace: grace,
		Manager: binaries.Manager, Agent: binaries.Agent, Settings: c.settings(),
	}
	b.Cleanup(func() {
		if b.Failed() {
			b.Log(netlab.Logs(o.Dir, 40))
		}
	})
	var err error
	w.lab, err = netlab.Start(context.WithoutCancel(b.Context()), o)
	w.must(err)
	b.Cleanup(w.lab.Stop)
	for _, name := range o.Machines {
		w.machines = append(w.machines, w.lab.Machine(name))
	}
	w.client, err = w.lab.AddNeighbor(b.Context(), "client")
	w.must(err)
	w.fresh, err = w.lab.AddNeighbor(b.Context(), "fresh")
	w.must(err)
	w.frames, err = w.lab.WatchSegment()
	w.must(err)
	b.Cleanup(w.frames.Close)
	w.must(c.start(w))
	for _, m := range w.machines {
		p, err := w.lab.RunPod(b.Context(), "pod-"+m.Name, m.Name, map[string]string{"app": "web"})
		w.must(err)
		w.pods[m.Name] = p
	}
	return w
}

func (w *world) must(err error) {
	w.b.Helper()
	if err != nil {
		w.b.Fatal(err)
	}
}

// await waits until missing returns "", and reports its last result otherwise.
func (w *world) await(what string, missing func() string) {
	w.b.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(w.b.Context(), 20*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			last = missing()
			return last == "", nil
		})
	if err != nil {
		w.b.Fatalf("%s: not within %s: %s", what, patience, last)
	}
}

// serve creates the Service, with traffic through all machines.
func (w *world) serve() {
	w.b.Helper()
	services := w.lab.Client.CoreV1().Services(metav1.NamespaceDefault)
	port := func(name string, protocol corev1.Protocol, number int32, target int) corev1.ServicePort {
		return corev1.ServicePort{
			Name: name, Protocol: protocol, Port: number, TargetPort: intstr.FromInt(target),
		}
	}
	_, err := services.Create(w.b.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"},
			AllocateLoadBalancerNodePorts: ptr.To(false),
			Ports: []corev1.ServicePort{
				port("tcp", corev1.ProtocolTCP, netlab.EchoPort, netlab.EchoPort), port("udp", corev1.ProtocolUDP, netlab.EchoPort, netlab.EchoPort),
				port("talk", corev1.ProtocolTCP, talkPort, netlab.TalkPort),
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	w.await("the Service has an address", func() string {
		s, err := services.Get(w.b.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return "its status has none"
		}
		w.address, err = netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
		if err != nil {
			return err.Error()
		}
		return ""
	})
	w.await("the client is answered", func() string {
		if _, err := netlab.Ask(w.b.Context(), w.client.Namespace, "tcp", w.echo()); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (w *world) echo() netip.AddrPort { return netip.AddrPortFrom(w.address, netlab.EchoPort) }

// holder returns the machine that replies to ARP when the client resolves the address again.
func (w *world) holder() (holder *netlab.Machine) {
	w.b.Helper()
	w.await("a machine answers for the address", func() string {
		w.must(w.client.Inquire(w.b.Context(), w.address))
		w.pause(50 * time.Millisecond)
		known, err := w.client.Knows(w.b.Context(), w.address)
		w.must(err)
		for _, m := range w.machines {
			if hardware, err := m.Hardware(); err == nil && hardware == known {
				holder = m
				return ""
			}
		}
		return fmt.Sprintf("the client knows %q", known)
	})
	return holder
}

// unload moves the pods off the holder, so that faults of it only affect the address.
func (w *world) unload(holder *netlab.Machine) {
	w.b.Helper()
	for _, m := range w.machines {
		if p := w.pods[m.Name]; m == holder && p != nil {
			w.must(p.Delete(w.b.Context()))
			delete(w.pods, m.Name)
		} else if m != holder && p == nil {
			p, err := w.lab.RunPod(w.b.Context(), fmt.Sprintf("pod-%s-%d", m.Name, time.Now().UnixNano()), m.Name, map[string]string{"app": "web"})
			w.must(err)
			w.pods[m.Name] = p
		}
	}
	// Until every kube-proxy has the change: each reply is from one of the current pods.
	for range 3 {
		w.await("the pods answer", func() string {
			for range 20 {
				answer, err := netlab.Ask(w.b.Context(), w.client.Namespace, "tcp", w.echo())
				if err != nil {
					return err.Error()
				}
				if strings.HasPrefix(answer.Name, "pod-"+holder.Name) {
					return "the pod on the holder answers"
				}
			}
			return ""
		})
	}
}

// node updates a Node.
func (w *world) node(name string, change func(*corev1.Node)) {
	w.b.Helper()
	nodes := w.lab.Client.CoreV1().Nodes()
	w.await("Node "+name+" is changed", func() string {
		n, err := nodes.Get(w.b.Context(), name, metav1.GetOptions{})
		if err == nil {
			change(n)
			_, err = nodes.Update(w.b.Context(), n, metav1.UpdateOptions{})
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// writes counts the contender's writes to the API server since a time, without its leases and
// Events.
func (w *world) writes(since time.Time) int {
	w.b.Helper()
	events, err := w.lab.ControlPlane.Audit()
	w.must(err)
	n := 0
	for _, e := range events {
		if e.Resource != "leases" && e.Resource != "events" && !e.Time.Before(since) && slices.Contains(w.contender.accounts(), e.User) {
			n++
		}
	}
	return n
}
