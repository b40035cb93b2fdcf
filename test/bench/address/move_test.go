//go:build linux

package address_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

const (
	movePage = "../../../docs/how-to/move-from-metallb.md"
	// The commands of the page that the test treats specially.
	stopController = "kubectl -n metallb-system scale deployment controller --replicas=0"
	deleteSpeakers = "kubectl -n metallb-system delete daemonset speaker"
	look           = "underlayctl addresses"

	moveRange6 = "2001:db8:1::100-2001:db8:1::109"
	// lostAtMost is how many packets of one stream the whole move may cost.
	lostAtMost = 0
)

// BenchmarkMove follows the page about moving Services from MetalLB to Underlay, by its own
// commands, while clients use their addresses.
func BenchmarkMove(b *testing.B) {
	built := needMetalLB(b)
	for range *rounds {
		b.Run("round", func(b *testing.B) {
			p := &peer{built: built, ranges: []string{addressRange, moveRange6}}
			m := &move{world: open(b, p), peer: p, seen: map[string][]string{}}
			m.tools()
			m.publish()
			m.watchStatus()
			m.follow()
		})
	}
}

// move is a cluster that moves.
type move struct {
	*world
	peer *peer
	// path contains Underlay's programs, shims the page's commands by their names.
	path, shims string
	addresses   []netip.Addr

	mu   sync.Mutex
	seen map[string][]string // the different addresses of a Service's status, by its name
}

// tools builds the programs that the page uses.
func (m *move) tools() {
	m.b.Helper()
	m.path, m.shims = m.b.TempDir(), m.b.TempDir()
	m.must(cluster.BuildAll(m.b.Context(), m.path))
	binary, err := kubebinary.Path(m.b.Context(), os.Stderr)
	m.must(err)
	// There is no Deployment of underlay-ccm with the flags and the file.
	flags := " --cloud-config=" + filepath.Join(m.lab.ControlPlane.Dir(), "underlay-ccm-2.yaml") +
		" --manager-flag=--allocate-node-cidrs --manager-flag=--cluster-cidr=" + cluster.PodRanges
	for name, line := range map[string]string{
		"kubectl":     binary + " kubectl \"$@\"",
		"underlayctl": filepath.Join(m.path, "underlayctl") + " \"$@\"" + flags,
	} {
		m.must(os.WriteFile(filepath.Join(m.shims, name), []byte("#!/bin/sh\nexec "+line+"\n"), 0o700))
	}
}

// run executes a command of the page.
func (m *move) run(command string) string {
	m.b.Helper()
	ctx, cancel := context.WithTimeout(m.b.Context(), patience)
	defer cancel()
	sh := exec.CommandContext(ctx, "sh", "-ec", command)
	sh.Env = append(os.Environ(), "KUBECONFIG="+m.lab.ControlPlane.AdminKubeconfig(), "PATH="+m.shims+":"+os.Getenv("PATH"))
	sh.WaitDelay = time.Second
	out, err := sh.CombinedOutput()
	if err != nil {
		m.b.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// publish creates Services of all kinds, and waits until MetalLB has assigned their addresses.
func (m *move) publish() {
	m.b.Helper()
	local := corev1.ServiceExternalTrafficPolicyLocal
	both, shared := corev1.IPFamilyPolicyRequireDualStack, map[string]string{"metallb.io/allow-shared-ip": "dns"}
	udp, tcp := corev1.ProtocolUDP, corev1.ProtocolTCP
	m.create("both", corev1.ServiceSpec{IPFamilyPolicy: &both}, nil, udp, tcp)
	m.create("local", corev1.ServiceSpec{ExternalTrafficPolicy: local}, nil, udp, tcp)
	m.create("dns-udp", corev1.ServiceSpec{}, shared, udp)
	first := m.status("dns-udp")
	shared = map[string]string{"metallb.io/allow-shared-ip": "dns", "metallb.io/loadBalancerIPs": first[0]}
	m.create("dns-tcp", corev1.ServiceSpec{}, shared, tcp)
	for _, name := range []string{"both", "local", "dns-tcp"} {
		for _, text := range m.status(name) {
			m.addresses = append(m.addresses, netip.MustParseAddr(text))
		}
	}
	if len(m.addresses) != 4 || m.status("dns-tcp")[0] != first[0] {
		m.b.Fatalf("MetalLB gave %v, and %v to be shared", m.addresses, first)
	}
}

func (m *move) create(
	name string, spec corev1.ServiceSpec, annotations map[string]string, protocols ...corev1.Protocol,
) {
	m.b.Helper()
	spec.Type, spec.Selector = corev1.ServiceTypeLoadBalancer, map[string]string{"app": "web"}
	for _, p := range protocols {
		spec.Ports = append(spec.Ports, corev1.ServicePort{
			Name: strings.ToLower(string(p)), Protocol: p, Port: netlab.EchoPort,
			TargetPort: intstr.FromInt(netlab.EchoPort),
		})
	}
	_, err := m.lab.Client.CoreV1().Services(metav1.NamespaceDefault).Create(m.b.Context(),
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: spec,
		}, metav1.CreateOptions{})
	m.must(err)
	m.await("Service "+name+" has an address", func() string {
		if len(m.status(name)) == 0 {
			return "it has none"
		}
		return ""
	})
}

// status returns the addresses of a Service.
func (m *move) status(name string) []string {
	m.b.Helper()
	s, err := m.lab.Client.CoreV1().Services(metav1.NamespaceDefault).Get(m.b.Context(), name,
		metav1.GetOptions{})
	m.must(err)
	return ingress(s)
}

func ingress(s *corev1.Service) (all []string) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		all = append(all, i.IP)
	}
	slices.Sort(all)
	return all
}

// watchStatus records all addresses that Services ever had.
func (m *move) watchStatus() {
	m.b.Helper()
	w, err := m.lab.Client.CoreV1().Services(metav1.NamespaceDefault).Watch(m.b.Context(),
		metav1.ListOptions{})
	m.must(err)
	m.b.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			s, is := e.Object.(*corev1.Service)
			if !is || e.Type == watch.Deleted || s.Spec.Type != corev1.ServiceTypeLoadBalancer {
				continue
			}
			now := strings.Join(ingress(s), " ")
			m.mu.Lock()
			if !slices.Contains(m.seen[s.Name], now) {
				m.seen[s.Name] = append(m.seen[s.Name], now)
			}
			m.mu.Unlock()
		}
	}()
}

var shell = regexp.MustCompile("(?s)```sh\n(.*?)```")

// commands are those of the page, in order.
func (m *move) commands() (all []string) {
	m.b.Helper()
	page, err := os.ReadFile(movePage)
	m.must(err)
	for _, block := range shell.FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, line)
			}
		}
	}
	for _, needed := range []string{stopController, deleteSpeakers, look} {
		if !slices.Contains(all, needed) {
			m.b.Fatalf("%s says nothing of %q", movePage, needed)
		}
	}
	return all
}

// follow executes the page's commands.
func (m *move) follow() {
	m.b.Helper()
	use := m.use()
	installed := false
	for _, command := range m.commands() {
		if command == look && !installed {
			installed = true
			m.install()
		}
		if strings.HasPrefix(command, "kubectl delete namespace ") {
			command += " --wait=false" // no controller empties namespaces here
		}
		out := m.run(command)
		fmt.Printf("$ %s\n%s", command, out)
		switch command {
		case stopController: // the kubelet's part
			m.must(m.peer.running.StopController(m.b.Context()))
		case deleteSpeakers:
			for _, machine := range m.machines {
				m.must(m.peer.stop(m.b.Context(), m.world, machine))
			}
			m.alone()
		}
	}
	use.end()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, had := range m.seen {
		if len(had) != 1 {
			m.b.Errorf("Service %s had the addresses %q, one after the other", name, had)
		}
	}
}

// install configures manager and agents with the pools, and waits until the agents report that they
// hold all.
func (m *move) install() {
	m.b.Helper()
	ctx := m.b.Context()
	m.lab.Configure("addresses:\n  pools:\n  - {name: segment, ranges: [" + addressRange + ", \"" + moveRange6 + "\"]}\n")
	m.must(m.lab.Manager.Signal(syscall.SIGTERM))
	select {
	case <-m.lab.Manager.Done():
	case <-ctx.Done():
		m.b.Fatal(context.Cause(ctx))
	}
	m.must(m.lab.StartManager(ctx))
	for _, machine := range m.machines {
		m.must(machine.StopAgent(ctx))
		m.must(machine.StartAgent(ctx))
		m.must(machine.AwaitReady(ctx))
	}
	m.await("the agents hold all addresses", func() string {
		held := m.held()
		for _, a := range m.addresses {
			if len(held[a]) != 1 {
				return fmt.Sprintf("%s is held by %q", a, held[a])
			}
		}
		return ""
	})
}

// held returns the machines that hold each address, from their agents' reports.
func (m *move) held() map[netip.Addr][]string {
	m.b.Helper()
	nodes, err := m.lab.Client.CoreV1().Nodes().List(m.b.Context(), metav1.ListOptions{})
	m.must(err)
	held := map[netip.Addr][]string{}
	for _, n := range nodes.Items {
		report, err := addresses.ParseReport(n.Annotations[addresses.ReportAnnotation])
		m.must(err)
		for _, h := range report.Held {
			held[h.Address] = append(held[h.Address], n.Name)
		}
	}
	return held
}

// alone waits until only the holders reply to ARP, and the Services are accepted.
func (m *move) alone() {
	m.b.Helper()
	for _, a := range m.addresses {
		m.await("only the holder answers for "+a.String(), func() string {
			since := time.Now()
			m.must(m.fresh.Inquire(m.b.Context(), a))
			m.pause(200 * time.Millisecond)
			if answers, held := m.frames.Claimants(a, since), m.held()[a]; !slices.Equal(answers, held) {
				return fmt.Sprintf("%q answer, %q hold it", answers, held)
			}
			return ""
		})
	}
	// The agents keep reporting the speakers' claims for a while.
	m.await("all Services are accepted", func() string {
		services, err := m.lab.Client.CoreV1().Services(metav1.NamespaceDefault).List(m.b.Context(),
			metav1.ListOptions{})
		m.must(err)
		for i := range services.Items {
			s := &services.Items[i]
			c := meta.FindStatusCondition(s.Status.Conditions, "underlay.dev/Accepted")
			if s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
				(c == nil || c.Status != metav1.ConditionTrue) {
				return fmt.Sprintf("Service %s: %+v", s.Name, c)
			}
		}
		return ""
	})
	m.pause(settled)
}
