package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/podingress"
)

// own returns a machine with pods that have public IPv6 addresses.
func own() Situation {
	s := segment()
	s.Nodes = []*kube.Node{aNode("self", "10.0.0.1", "fd00::1", "10.244.1.0/24", "2001:db8:1:0:1::/80", "fd01:1::/64")}
	return s
}

func TestIngress(t *testing.T) {
	for _, c := range []struct {
		name    string
		targets map[string]string
		want    string // sources and endpoints
		warns   []string
	}{
		{name: "nothing", want: "[]"},
		{
			name:    "a pod",
			targets: map[string]string{"a": `{"from":["2001:db8:f::1/128"],"to":["[2001:db8:1:0:1::7]:80"]}`},
			want:    `[{"from":["2001:db8:f::1/128"],"to":["[2001:db8:1:0:1::7]:80"]}]`,
		},
		{
			name: "two Services, in the order of their annotations",
			targets: map[string]string{
				"b": `{"from":["2001:db8:f::2/128"],"to":["[2001:db8:1:0:1::7]:80"]}`,
				"a": `{"from":["2001:db8:f::1/128","2001:db8:f::/64"],"to":["[2001:db8:1:0:1::7]:80","[2001:db8:1:0:1::8]:81"]}`,
			},
			want: `[{"from":["2001:db8:f::/64","2001:db8:f::1/128"],"to":["[2001:db8:1:0:1::7]:80","[2001:db8:1:0:1::8]:81"]} ` +
				`{"from":["2001:db8:f::2/128"],"to":["[2001:db8:1:0:1::7]:80"]}]`,
		},
		{
			name: "another node's pod, the node itself, private pods, IPv4",
			targets: map[string]string{"a": `{"from":["2001:db8:f::1/128"],"to":["[2001:db8:2:0:1::7]:80","[2001:db8:1::1]:22",` +
				`"[fd01:1::7]:80","10.244.1.7:80","[::ffff:10.244.1.7]:80","[2001:db8:1:0:1::7%eth0]:80","[2001:db8:1:0:1::7]:80"]}`},
			want:  `[{"from":["2001:db8:f::1/128"],"to":["[2001:db8:1:0:1::7]:80"]}]`,
			warns: []string{"targets-a of this Node is not followed: 6 of 7 endpoints"},
		},
		{
			name:    "sources of IPv4",
			targets: map[string]string{"a": `{"from":["0.0.0.0/0","::ffff:192.0.2.0/120"],"to":["[2001:db8:1:0:1::7]:80"]}`},
			want:    "[]", warns: []string{"targets-a of this Node is not followed: 2 of 2 sources"},
		},
		{
			name: "one that can't be read beside one that can",
			targets: map[string]string{
				"a": "any", "b": `{"from":["2001:db8:f::1/128"],"to":["[2001:db8:1:0:1::7]:80"]}`,
			},
			want: `[{"from":["2001:db8:f::1/128"],"to":["[2001:db8:1:0:1::7]:80"]}]`, warns: []string{"targets-a of this Node is not followed: reading"},
		},
		{name: "no source", targets: map[string]string{"a": `{"from":[],"to":["[2001:db8:1:0:1::7]:80"]}`}, want: "[]"},
		{name: "no endpoint", targets: map[string]string{"a": `{"from":["2001:db8:f::1/128"]}`}, want: "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := own()
			s.Targets = map[string]string{}
			for uid, value := range c.targets {
				s.Targets[podingress.Annotation(uid)] = value
			}
			d, err := Decide(s)
			if got := fmt.Sprint(d.View.Ingress); err != nil || got != c.want {
				t.Errorf("open is %s, %v, want %s", got, err, c.want)
			}
			match := func(line, want string) bool { return strings.Contains(line, want) }
			if !slices.EqualFunc(d.Warnings, c.warns, match) {
				t.Errorf("warnings %q, want %q", d.Warnings, c.warns)
			}
		})
	}
}

func annotated(node *corev1.Node, key, value string) *corev1.Node {
	node = node.DeepCopy()
	node.Annotations = map[string]string{"another": "x", key: value}
	return node
}

// The agent applies the annotation of its own Node at once; other annotations and other Nodes cause
// no pass.
func TestOwnTargetsAreFollowedAtOnce(t *testing.T) {
	self := kubeNode("self", "10.0.0.1", "fd00::1", "10.244.1.0/24", "2001:db8:1:0:1::/80")
	key := podingress.Annotation("a")
	const value = `{"from":["2001:db8:f::1/128"],"to":["[2001:db8:1:0:1::7]:80"]}`
	withFixture(t, bothByNodes, []*corev1.Node{self, peerB()}, func(w *fixture) {
		looks := w.machine.looks()
		w.put(annotated(peerB(), key, value))
		w.put(annotated(self, "theirs", value))
		w.rest()
		if n := w.machine.looks() - looks; n > 0 {
			t.Errorf("annotations of others caused %d passes", n)
		}
		w.put(annotated(self, key, value))
		w.rest()
		open := func() string {
			asked := w.before.log()
			_, open, _ := strings.Cut(asked[len(asked)-1], " open to ")
			return open
		}
		if got := open(); got != "["+value+"]" || w.machine.looks() != looks+1 {
			t.Errorf("open is %q after %d passes", got, w.machine.looks()-looks)
		}
		w.put(annotated(self, key, value+" "))
		w.rest()
		if c := w.condition(PeersReachable); c.Reason != reasonAllReachable {
			t.Errorf("the condition says %s: %s", c.Reason, c.Message)
		}
		w.put(annotated(self, key, "any"))
		w.rest()
		if got := open(); got != "" {
			t.Errorf("open is %q by what can't be read", got)
		}
		if c := w.condition(PeersReachable); c.Reason != ReasonAtRisk ||
			!strings.Contains(c.Message, key) {
			t.Errorf("the condition says %s: %s", c.Reason, c.Message)
		}
		w.put(self)
		w.rest()
		if got := open(); got != "" {
			t.Errorf("open is %q when all is gone", got)
		}
	})
}
