package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/test/demo/screen"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// noPackets is why this machine can't show packets; empty: it can.
func noPackets() string {
	if os.Geteuid() != 0 {
		return "not root, and network namespaces take root"
	}
	if os.Getenv("CNI_PATH") == "" {
		return "CNI_PATH names no folder with the CNI plugins; make demo sets it"
	}
	for program, pkg := range map[string]string{"ip": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Sprintf("%s is not installed (Debian's package %s)", program, pkg)
		}
	}
	return ""
}

// noTunnels is why this machine can't show tunnels; empty: it can.
func noTunnels() string {
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return "there is no /dev/net/tun, which wireguard-go takes"
	}
	return ""
}

// sendPackets shows packets. They need network namespaces, which belong to a process, so it starts
// this program once more: see packetsShown.
func (t *terminal) sendPackets(ctx context.Context, folder, manager, reader string) error {
	folder = filepath.Join(folder, "packets")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	t.wait(t.Status(0, []string{"underlay-agent to be built"}, t.width))
	agent, err := cluster.BuildAgent(ctx, folder)
	if err != nil {
		return err
	}
	wireGuard := ""
	if noTunnels() == "" {
		if wireGuard, err = cluster.BuildWireGuard(ctx, folder); err != nil {
			return err
		}
	}
	t.wait(t.Status(0, []string{"a cluster in network namespaces"}, t.width))
	cmd := exec.CommandContext(ctx, "/proc/self/exe", packetsFlag+"="+folder)
	cmd.Env = append(os.Environ(), managerVariable+"="+manager, agentVariable+"="+agent, readerVariable+"="+reader, wireGuardVariable+"="+wireGuard)
	if t.Color {
		cmd.Env = append(cmd.Env, colorVariable+"=1")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	var complaint strings.Builder
	cmd.Stderr = &complaint
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(said); lines.Scan(); {
		t.print(lines.Text() + "\n")
	}
	if err := cmd.Wait(); err != nil {
		return errors.Join(context.Cause(ctx), errors.New(strings.TrimSpace(complaint.String())))
	}
	return nil
}

// Environment variables of the process that shows packets.
const (
	managerVariable   = "UNDERLAY_DEMO_MANAGER"
	agentVariable     = "UNDERLAY_DEMO_AGENT"
	wireGuardVariable = "UNDERLAY_DEMO_WIREGUARD" // empty: no tunnels
	readerVariable    = "UNDERLAY_DEMO_READER"
	colorVariable     = "UNDERLAY_DEMO_COLOR"
)

// packetsShown is the main function of that process, with its logs in folder. It returns the exit
// code.
func packetsShown(ctx context.Context, folder string, out io.Writer) int {
	err := netlab.Enter()
	if err == nil {
		err = quiet(filepath.Join(folder, "demo.log"))
	}
	if err == nil {
		p := packets{out: out, painter: screen.Painter{Color: os.Getenv(colorVariable) != ""}, began: time.Now()}
		o := netlab.Options{
			Machines: []string{"node-1", "node-2", "node-3"}, Dir: folder,
			Manager: os.Getenv(managerVariable), Agent: os.Getenv(agentVariable),
			WireGuard: os.Getenv(wireGuardVariable),
		}
		if o.WireGuard != "" {
			o.Settings = fmt.Sprintf("routes: {limit: %d}\nwireguard: overflow\n", len(o.Machines))
		}
		err = p.show(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// packets shows which connections work in a lab.
type packets struct {
	out     io.Writer
	painter screen.Painter
	began   time.Time
	lab     *netlab.Lab
	rows    []screen.Trip
}

func (p *packets) note(format string, args ...any) {
	fmt.Fprint(p.out, p.painter.Note(fmt.Sprintf("%4.1f s  ", time.Since(p.began).Seconds())+fmt.Sprintf(format, args...)))
}

func (p *packets) show(ctx context.Context, o netlab.Options) (err error) {
	if p.lab, err = p.start(ctx, o); err != nil {
		return err
	}
	defer p.lab.Stop()
	p.note("%s, each a network namespace with underlay-agent and kube-proxy, at a router that follows the network's routes", strings.Join(o.Machines, ", "))
	var pods []*netlab.Pod
	for _, at := range [][2]string{{"client", "node-1"}, {"web-2", "node-2"}, {"web-3", "node-3"}} {
		app, _, _ := strings.Cut(at[0], "-")
		pod, err := p.lab.RunPod(ctx, at[0], at[1], map[string]string{"app": app})
		if err != nil {
			return err
		}
		p.note("pod %-6s on %s  %s  %s", pod.Name, at[1], pod.IPv4, pod.IPv6)
		pods = append(pods, pod)
	}
	together, working := errgroup.WithContext(ctx)
	if o.WireGuard != "" {
		together.Go(func() error { return p.lab.AddMachines(working, beyond) })
	}
	together.Go(func() error {
		if err := p.betweenPods(working, pods[0], pods[1], pods[2]); err != nil {
			return err
		}
		if err := p.outside(working, pods[0]); err != nil {
			return err
		}
		return p.loadBalancer(working)
	})
	if err := together.Wait(); err != nil {
		return err
	}
	if o.WireGuard == "" {
		p.note("no tunnel is shown: %s", noTunnels())
	} else if err := p.tunnel(ctx, pods[0]); err != nil {
		return err
	}
	if err := errors.Join(install(ctx, p.lab.Cluster), p.lab.ShowAgents(ctx)); err != nil {
		return err
	}
	line, err := examine(ctx, os.Getenv(readerVariable), p.lab.Cluster)
	if err != nil {
		return err
	}
	p.note("underlayctl doctor, with agents and kube-proxies on all machines: %s", line)
	fmt.Fprint(p.out, p.painter.Trips(p.rows))
	return nil
}

// start starts the lab, with kube-proxies that have the cluster's configuration.
func (p *packets) start(ctx context.Context, o netlab.Options) (*netlab.Lab, error) {
	object, err := proxyConfig(ctx)
	if err != nil {
		return nil, err
	}
	proxy, err := kube.ReadProxy(object)
	if err != nil {
		return nil, err
	}
	for _, text := range proxy.NodePortAddresses {
		a, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("kube-proxy's nodePortAddresses: %w", err)
		}
		o.NodePortAddresses = append(o.NodePortAddresses, a)
	}
	return netlab.Start(ctx, o)
}

// trip sends a request over TCP and expects an address as its observed source.
func (p *packets) trip(
	ctx context.Context, from string, ns *netns.Namespace, to, way string, at netip.AddrPort,
	want netip.Addr,
) error {
	began := time.Now()
	answer, err := netlab.Ask(ctx, ns, "tcp", at)
	if err != nil {
		return fmt.Errorf("%s to %s: %w", from, to, err)
	}
	if want.IsValid() && answer.Source.Addr() != want {
		return fmt.Errorf("%s to %s: %s saw it come from %s, want %s", from, to, answer.Name, answer.Source.Addr(), want)
	}
	p.rows = append(p.rows, screen.Trip{
		From: from, To: to, Way: way, Answered: answer.Name, Seen: answer.Source.Addr(),
		Took: time.Since(began),
	})
	return nil
}

func (p *packets) betweenPods(ctx context.Context, all ...*netlab.Pod) error {
	for i, from := range all {
		to := all[(i+1)%len(all)]
		for _, way := range []struct {
			name   string
			at, is netip.Addr
		}{{"IPv4, by the network's route", to.IPv4, from.IPv4}, {"IPv6, by the server's own /64", to.IPv6, from.IPv6}} {
			if err := p.trip(ctx, from.Name, from.Namespace, to.Name, way.name,
				netip.AddrPortFrom(way.at, netlab.EchoPort), way.is); err != nil {
				return err
			}
		}
	}
	return nil
}

// beyond is the name of a node for which the network's route table has no room.
const beyond = "node-4"

// tunnel connects a pod with one on that node, which has a tunnel to each other node.
func (p *packets) tunnel(ctx context.Context, pod *netlab.Pod) error {
	node, err := p.lab.Client.CoreV1().Nodes().Get(ctx, beyond, metav1.GetOptions{})
	if err != nil {
		return err
	}
	shaken, err := p.lab.Machine(beyond).TunnelHandshakes()
	if err != nil {
		return err
	}
	if reach := kube.ReachOf(node); reach != routes.NoRoom || len(shaken) != 3 ||
		slices.Contains(slices.Collect(maps.Values(shaken)), false) {
		return fmt.Errorf("%s has the reach %q, want %q, and WireGuard handshakes %v", beyond, reach, routes.NoRoom, shaken)
	}
	p.note("%s, for which the network's table has no room, has WireGuard tunnels to the three (wireguard-go stands in for the kernel's)", beyond)
	far, err := p.lab.RunPod(ctx, "far", beyond, nil)
	if err != nil {
		return err
	}
	p.note("pod %-6s on %s  %s  %s", far.Name, beyond, far.IPv4, far.IPv6)
	const way = "IPv4, by a WireGuard tunnel"
	return errors.Join(
		p.trip(ctx, pod.Name, pod.Namespace, far.Name, way, netip.AddrPortFrom(far.IPv4, netlab.EchoPort),
			pod.IPv4),
		p.trip(ctx, far.Name, far.Namespace, pod.Name, way, netip.AddrPortFrom(pod.IPv4, netlab.EchoPort),
			far.IPv4),
	)
}

// outside connects out and in: out with the node's IPv4 address and the pod's own IPv6 one, in
// without success.
func (p *packets) outside(ctx context.Context, pod *netlab.Pod) error {
	const port = 8081
	if _, err := p.lab.Serve(ctx, p.lab.Outside(), "outside", port); err != nil {
		return err
	}
	public := pod.Machine.Public
	err := errors.Join(
		p.trip(ctx, pod.Name, pod.Namespace, "outside", "IPv4, under the node's address", netip.AddrPortFrom(netlab.OutsideIPv4, port), public.IPv4),
		p.trip(ctx, pod.Name, pod.Namespace, "outside", "IPv6, under its own address", netip.AddrPortFrom(netlab.OutsideIPv6, port), pod.IPv6),
	)
	if err != nil {
		return err
	}
	if answer, err := netlab.Ask(ctx, p.lab.Outside(), "tcp", netip.AddrPortFrom(pod.IPv6, netlab.EchoPort)); err == nil {
		return fmt.Errorf("the outside reaches the pod %s at its public address: the inbound filter should drop that", answer.Name)
	}
	p.rows = append(p.rows, screen.Trip{From: "outside", To: pod.Name, Way: "IPv6, its public address"})
	return nil
}

// loadBalancer connects to the pods on other nodes from outside, through the cloud.
func (p *packets) loadBalancer(ctx context.Context) error {
	services := p.lab.Client.CoreV1().Services(namespace)
	_, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service, Annotations: map[string]string{
			// The shortest interval of the cloud, for the sake of viewers.
			"load-balancer.hetzner.cloud/health-check-interval": "3s", "load-balancer.hetzner.cloud/health-check-retries": "1",
		}},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			IPFamilyPolicy:        ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Selector:              map[string]string{"app": service},
			Ports: []corev1.ServicePort{
				{Port: 80, TargetPort: intstr.FromInt32(netlab.EchoPort)},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, lookEvery, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			svc, err := services.Get(ctx, service, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			addresses := public(svc)
			if len(addresses) < 2 {
				last = fmt.Errorf("the load balancer has the public addresses %v", addresses)
				return false, nil
			}
			kept := len(p.rows)
			for _, a := range addresses {
				// The first target may not be healthy yet.
				if last = p.trip(ctx, "outside", p.lab.Outside(), "load balancer", fmt.Sprintf("%s, to a node with a pod", a), netip.AddrPortFrom(a, 80), netip.Addr{}); last != nil {
					p.rows = p.rows[:kept]
					return false, nil
				}
			}
			return true, nil
		})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// public are a Service's addresses that are reachable from outside.
func public(svc *corev1.Service) (all []netip.Addr) {
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(ingress.IP); err == nil && !a.IsPrivate() {
			all = append(all, a)
		}
	}
	return all
}
