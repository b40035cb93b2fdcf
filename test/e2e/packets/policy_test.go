//go:build linux

package packets

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/internal/netfilter"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// NetworkPolicies are enforced between real pods on several machines, with the shipped permissions,
// also while no agent runs, and their removal leaves nothing behind.
func TestNetworkPolicies(t *testing.T) {
	f := start(t, netlab.Options{Metal: true, Machines: []string{"one", "two"}})
	answerEverywhere(t, f, f.Machine("one"), f.Machine("two"))
	p := &policed{f: f, one: f.Machine("one"), two: f.Machine("two")}
	pod := func(name, machine string) *netlab.Pod {
		return runPods(t, f, map[string]string{"app": name}, [2]string{name, machine})[0]
	}
	p.web, p.db, p.other, p.neighbor = pod("web", "one"), pod("db", "two"), pod("other", "one"), pod("neighbor", "two")
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"without a policy there is no table", p.without},
		{"ingress by pod and named port", p.ingress},
		{"established connections end with a new policy", p.cut},
		{"egress to a block", p.egress},
		{"closed while the agent is away", p.away},
		{"without a policy everything is open again", p.open},
	} {
		if !t.Run(step.name, step.run) {
			break
		}
	}
}

type policed struct {
	f                        *netlab.Lab
	one, two                 *netlab.Machine
	web, db, other, neighbor *netlab.Pod
}

func (p *policed) pods() []*netlab.Pod { return []*netlab.Pod{p.web, p.db, p.other, p.neighbor} }

func (p *policed) policy(t *testing.T, name, spec string) {
	t.Helper()
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &policy.Spec); err != nil {
		t.Fatal(err)
	}
	_, err := p.f.Client.NetworkingV1().NetworkPolicies(metav1.NamespaceDefault).Create(t.Context(),
		policy, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// closes waits until there are no replies any more, over TCP and UDP.
func closes(t *testing.T, from, to *netlab.Pod) {
	t.Helper()
	for _, a := range to.Addrs() {
		await(t, from.Name+" is kept from "+to.Name, func() string {
			if _, err := netlab.Ask(t.Context(), from.Namespace, "tcp", echo(a)); err == nil {
				return a.String() + " answers"
			}
			return ""
		})
		refused(t, of(from), echo(a), both()...)
	}
}

func opens(t *testing.T, from, to *netlab.Pod, networks ...string) {
	t.Helper()
	for _, a := range to.Addrs() {
		reaches(t, of(from), echo(a), to.Name, family(a, from.IPv4, from.IPv6), networks...)
	}
}

func hasPolicyTable(t *testing.T, m *netlab.Machine) bool {
	t.Helper()
	return strings.Contains(run(t, m, "nft", "list", "tables"), netfilter.PolicyTableName)
}

func (p *policed) without(t *testing.T) {
	everyPodReachesEveryPod(t, p.pods())
	for _, m := range []*netlab.Machine{p.one, p.two} {
		if hasPolicyTable(t, m) {
			t.Errorf("%s has a table without a policy", m.Name)
		}
	}
}

func (p *policed) ingress(t *testing.T) {
	p.policy(t, "db", `
podSelector: {matchLabels: {app: db}}
ingress:
- from: [{podSelector: {matchLabels: {app: web}}}]
  ports: [{port: echo}]
`)
	closes(t, p.other, p.db)
	closes(t, p.neighbor, p.db) // on the same machine
	opens(t, p.web, p.db, "tcp")
	for _, a := range p.db.Addrs() {
		refused(t, of(p.web), echo(a), "udp") // the port is one of TCP
		refused(t, machine(p.one), echo(a), "tcp")
		if _, err := netlab.Ask(t.Context(), p.two.Namespace, "tcp", echo(a)); err != nil {
			t.Errorf("the pod's own node is kept from it: %v", err)
		}
	}
	opens(t, p.db, p.other, both()...)
	opens(t, p.neighbor, p.web, both()...)
}

// cut opens two connections to a pod, of which a new policy allows one.
func (p *policed) cut(t *testing.T) {
	to := netip.AddrPortFrom(p.neighbor.IPv6, netlab.TalkPort)
	talk := func(from *netlab.Pod) *netlab.Talk {
		s, err := netlab.StartTalk(t.Context(), from.Namespace, to, 10*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	kept, ended := talk(p.web), talk(p.other)
	answered := func(s *netlab.Talk, more int) bool {
		want := s.Answered() + more
		return poll(t.Context(), patience, func() bool { return s.Answered() >= want })
	}
	if !answered(kept, 5) || !answered(ended, 5) {
		t.Fatal("connections that no policy forbids are not answered")
	}
	p.policy(t, "neighbor", `
podSelector: {matchLabels: {app: neighbor}}
ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]
`)
	await(t, "the connection ends", func() string {
		before, reference := ended.Answered(), kept.Answered()
		if !poll(t.Context(), patience, func() bool { return kept.Answered() >= reference+50 }) {
			return "the allowed connection is not answered"
		}
		if ended.Answered() > before {
			return "it is still answered"
		}
		return ""
	})
	if got := kept.Stop(); got.Broken != nil || got.Gap > patience/10 {
		t.Errorf("the connection that is allowed: %+v", got)
	}
	ended.Stop()
}

func (p *policed) egress(t *testing.T) {
	p.policy(t, "other", `
podSelector: {matchLabels: {app: other}}
policyTypes: [Egress]
egress: [{to: [{ipBlock: {cidr: `+netip.PrefixFrom(netlab.OutsideIPv4, 24).Masked().String()+`, except: [`+netlab.OutsideIPv4.String()+`/32]}}, {ipBlock: {cidr: `+netlab.OutsideIPv6.String()+`/128}}]}]
`)
	closes(t, p.other, p.web) // on the same machine
	reaches(t, of(p.other), ownPort(netlab.OutsideIPv6), "outside", p.one.Public.IPv6, both()...)
	refused(t, of(p.other), ownPort(netlab.OutsideIPv4), both()...)                 // the exception
	reaches(t, of(p.other), ownPort(p.one.Public.IPv4), "one", p.other.IPv4, "tcp") // its own node
	refused(t, of(p.other), ownPort(p.two.Public.IPv4), both()...)
	opens(t, p.web, p.other, both()...) // replies pass
}

func (p *policed) away(t *testing.T) {
	p.two.KillAgent()
	refused(t, of(p.other), echo(p.db.IPv4), both()...)
	opens(t, p.web, p.db, "tcp")
	late := runPods(t, p.f, map[string]string{"app": "late"}, [2]string{"late", "two"})[0]
	for _, a := range late.Addrs() {
		refused(t, of(p.web), echo(a), both()...)
		refused(t, of(late), echo(family(a, p.web.IPv4, p.web.IPv6)), both()...)
	}
	(&rack{f: p.f}).restarted(t, p.two)
	opens(t, p.web, late, both()...)
	opens(t, late, p.web, both()...)
	refused(t, of(late), echo(p.db.IPv4), both()...)
}

func (p *policed) open(t *testing.T) {
	policies := p.f.Client.NetworkingV1().NetworkPolicies(metav1.NamespaceDefault)
	err := policies.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	everyPodReachesEveryPod(t, p.pods())
	for _, m := range []*netlab.Machine{p.one, p.two} {
		await(t, "the table is removed", func() string {
			if hasPolicyTable(t, m) {
				return m.Name + " has one"
			}
			return ""
		})
	}
}
