package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/policy"
)

// question is whether a connection between a pod and another end is allowed.
type question struct{ from, to, port string }

func inspectPod(w process, o *options) *cobra.Command {
	var q question
	cmd := &cobra.Command{
		Use:               "pod NAMESPACE/NAME",
		Short:             "The NetworkPolicies of a pod, and whether they allow a connection",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: o.completeArgument("pods"),
		RunE: func(cmd *cobra.Command, args []string) error {
			const parts = survey.PartNodes | survey.PartNetworkPolicies
			return o.show(cmd.Context(), w, survey.Want{Parts: parts},
				func(s *survey.Snapshot) (table.Page, error) {
					if err := s.Require(parts); err != nil {
						return table.Page{}, err
					}
					if s.NetworkPolicies == nil {
						return table.Page{
							Lines: []string{"The cluster has no NetworkPolicies: they deny no connection."},
						}, nil
					}
					return inspectionOf(s.NetworkPolicies, args[0], q)
				})
		},
	}
	cmd.Flags().StringVar(&q.from, "from", "",
		"Show whether the pod can be reached from here: NAMESPACE/NAME of a pod, or an address.")
	cmd.Flags().StringVar(&q.to, "to", "",
		"Show whether the pod reaches this: NAMESPACE/NAME of a pod, or an address.")
	cmd.Flags().StringVar(&q.port, "port", "", "The port, such as 80 or 53/udp; for --from and --to.")
	cmd.MarkFlagsMutuallyExclusive("from", "to")
	return cmd
}

// inspectionOf shows the policies that isolate the pod, and judges the connection of q if it is
// set.
func inspectionOf(x *policy.Index, pod string, q question) (out table.Page, err error) {
	name, err := podName(pod)
	if err != nil {
		return out, err
	}
	addresses := x.Held(name)
	if len(addresses) == 0 {
		return out, fmt.Errorf("pod %s has no address in its node's podCIDRs: it doesn't exist, has not started, has ended, or uses the host's network, where no NetworkPolicy applies", pod)
	}
	t := table.New("policies", "", "POD", "DIRECTION", "POLICY")
	selecting := map[policy.Name]bool{}
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		all := x.Selecting(name, d)
		if len(all) == 0 {
			t.Add(pod, d.String(), "none: everything is allowed")
		}
		for _, p := range all {
			selecting[p] = true
			t.Add(pod, d.String(), p.String())
		}
	}
	out.Tables = []table.Table{t}
	for _, w := range x.Warnings() {
		if selecting[w.Policy] {
			out.Notes = append(out.Notes, w.Policy.String()+": "+w.Text)
		}
	}
	if q != (question{}) {
		out.Lines, err = verdicts(x, pod, addresses, q)
	}
	return out, err
}

func podName(text string) (policy.Name, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return policy.Name{}, fmt.Errorf("%q is no pod: write NAMESPACE/NAME", text)
	}
	return policy.Name{Namespace: namespace, Name: name}, nil
}

// verdicts judges the connection in each family that both ends have.
func verdicts(
	x *policy.Index, pod string, addresses []netip.Addr, q question,
) (verdicts []string, err error) {
	other := q.from + q.to
	if other == "" || q.port == "" {
		return nil, errors.New("--from or --to needs --port, and --port one of them")
	}
	protocol, port, err := parsePort(q.port)
	if err != nil {
		return nil, err
	}
	var others []netip.Addr
	if a, err := netip.ParseAddr(other); err == nil {
		others = []netip.Addr{a.Unmap()}
	} else if name, err := podName(other); err == nil {
		others = x.Held(name)
	} else {
		return nil, fmt.Errorf("%w, or an address", err)
	}
	for _, mine := range addresses {
		for _, theirs := range others {
			if mine.Is4() != theirs.Is4() {
				continue
			}
			c := policy.Connection{From: mine, To: theirs, Protocol: protocol, Port: port}
			if q.from != "" {
				c.From, c.To = theirs, mine
			}
			verdicts = append(verdicts, verdict(c, x.Explain(c)))
		}
	}
	if len(verdicts) == 0 {
		return nil, fmt.Errorf("pod %s and %s have no addresses of the same family", pod, other)
	}
	return verdicts, nil
}

func parsePort(text string) (policy.Protocol, uint16, error) {
	number, name, _ := strings.Cut(text, "/")
	protocol, known := map[string]policy.Protocol{
		"": policy.TCP, "tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP,
	}[strings.ToLower(name)]
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
	return fmt.Sprintf("%s: %s to %s, %s %d: %s", word, c.From, c.To, c.Protocol, c.Port,
		strings.Join(why, "; "))
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
