package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/policy"
)

// question is whether a connection between a pod and another end is allowed.
type question struct{ from, to, port string }

func inspectPod(w process, o *options) *cobra.Command {
	var q question
	cmd := &cobra.Command{
		Use: "pod NAMESPACE/NAME", Short: "The NetworkPolicies of a pod, and whether they allow a connection", Args: cobra.ExactArgs(1),
		ValidArgsFunction: o.completeArgument(podNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			ctx, cancel := o.patience(cmd.Context())
			defer cancel()
			client, err := o.client()
			if err != nil {
				return err
			}
			index, err := survey.ReadNetworkPolicies(ctx, client)
			if err != nil {
				return err
			}
			v, err := inspectionOf(index, args[0], q)
			if err != nil {
				return err
			}
			return o.print(w, v)
		},
	}
	cmd.Flags().StringVar(&q.from, "from", "", "Show whether the pod can be reached from here: NAMESPACE/NAME of a pod, or an address.")
	cmd.Flags().StringVar(&q.to, "to", "", "Show whether the pod reaches this: NAMESPACE/NAME of a pod, or an address.")
	cmd.Flags().StringVar(&q.port, "port", "", "The port, such as 80 or 53/udp; for --from and --to.")
	cmd.MarkFlagsMutuallyExclusive("from", "to")
	return cmd
}

func podNames(ctx context.Context, client kubernetes.Interface) (names []string, err error) {
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return names, nil
}

// podInspection is what underlayctl inspect pod prints.
type podInspection struct {
	Pod       string       `json:"pod"`
	Addresses []netip.Addr `json:"addresses"`
	// Ingress and Egress are the policies that isolate the pod; without any, everything is allowed.
	Ingress  []string `json:"ingress"`
	Egress   []string `json:"egress"`
	Warnings []string `json:"warnings,omitempty"`
	Verdicts []string `json:"verdicts,omitempty"`
	// Allowed is set if a connection was asked for: all families have to be allowed.
	Allowed *bool `json:"allowed,omitempty"`
}

func inspectionOf(x *policy.Index, pod string, q question) (v podInspection, err error) {
	name, err := podName(pod)
	if err != nil {
		return v, err
	}
	v = podInspection{Pod: pod, Addresses: x.Held(name)}
	selecting := map[policy.Name]bool{}
	for d, into := range []*[]string{&v.Ingress, &v.Egress} {
		*into = []string{}
		for _, p := range x.Selecting(name, policy.Direction(d)) {
			selecting[p] = true
			*into = append(*into, p.String())
		}
	}
	for _, w := range x.Warnings() {
		if selecting[w.Policy] {
			v.Warnings = append(v.Warnings, w.Policy.String()+": "+w.Text)
		}
	}
	if len(v.Addresses) == 0 {
		return v, fmt.Errorf("pod %s has no address in its node's podCIDRs: it doesn't exist, has not started, has ended, or uses the host's network, where no NetworkPolicy applies", pod)
	}
	if q != (question{}) {
		err = v.answer(x, q)
	}
	return v, err
}

func podName(text string) (policy.Name, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return policy.Name{}, fmt.Errorf("%q is no pod: write NAMESPACE/NAME", text)
	}
	return policy.Name{Namespace: namespace, Name: name}, nil
}

// answer judges the connection in each family that both ends have.
func (v *podInspection) answer(x *policy.Index, q question) error {
	other := q.from + q.to
	if other == "" || q.port == "" {
		return errors.New("--from or --to needs --port, and --port one of them")
	}
	protocol, port, err := parsePort(q.port)
	if err != nil {
		return err
	}
	var others []netip.Addr
	if a, err := netip.ParseAddr(other); err == nil {
		others = []netip.Addr{a.Unmap()}
	} else {
		name, err := podName(other)
		if err != nil {
			return fmt.Errorf("%w, or an address", err)
		}
		others = x.Held(name)
	}
	allowed := true
	for _, mine := range v.Addresses {
		for _, theirs := range others {
			if mine.Is4() != theirs.Is4() {
				continue
			}
			c := policy.Connection{From: mine, To: theirs, Protocol: protocol, Port: port}
			if q.from != "" {
				c.From, c.To = theirs, mine
			}
			e := x.Explain(c)
			allowed = allowed && e.Allowed
			v.Verdicts = append(v.Verdicts, verdict(c, e))
		}
	}
	if len(v.Verdicts) == 0 {
		return fmt.Errorf("pod %s and %s have no addresses of the same family", v.Pod, other)
	}
	v.Allowed = &allowed
	return nil
}

func parsePort(text string) (policy.Protocol, uint16, error) {
	number, name, _ := strings.Cut(text, "/")
	protocol, known := map[string]policy.Protocol{"": policy.TCP, "tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP}[strings.ToLower(name)]
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 || !known {
		return 0, 0, fmt.Errorf("--port %q is no port: write one such as 80, 53/udp or 99/sctp", text)
	}
	return protocol, uint16(port), nil
}

func verdict(c policy.Connection, e policy.Explanation) string {
	word := map[bool]string{true: "allowed", false: "denied"}[e.Allowed]
	why := []string{e.Note}
	if e.Note == "" {
		why = []string{reason("egress", e.Egress), reason("ingress", e.Ingress)}
	}
	return fmt.Sprintf("%s: %s to %s, %s %d: %s", word, c.From, c.To, c.Protocol, c.Port, strings.Join(why, "; "))
}

func reason(direction string, s policy.Side) string {
	switch {
	case s.Pod == (policy.Name{}):
		return direction + " of no pod"
	case len(s.Policies) == 0:
		return fmt.Sprintf("no policy isolates %s for %s", s.Pod, direction)
	case len(s.By) > 0:
		return "allowed by " + s.By[0].String()
	}
	names := make([]string, len(s.Policies))
	for i, p := range s.Policies {
		names[i] = p.String()
	}
	return fmt.Sprintf("no %s rule of %s allows it", direction, strings.Join(names, ", "))
}

func (v podInspection) Page() table.Page {
	t := table.New("", "POD", "DIRECTION", "POLICY")
	for i, policies := range [][]string{v.Ingress, v.Egress} {
		direction := policy.Direction(i).String()
		if len(policies) == 0 {
			t.Add(v.Pod, direction, "none: everything is allowed")
		}
		for _, p := range policies {
			t.Add(v.Pod, direction, p)
		}
	}
	return table.Page{Tables: []table.Table{t}, Lines: v.Verdicts, Notes: v.Warnings}
}
