package docs

import (
	"slices"
	"strings"
	"testing"
)

// told is something that people are told about an object: by an Event, by a
// condition, or by both.
type told struct {
	reason string
	// event is Normal or Warning; empty: there is no Event.
	event string
	// condition is the type and status of the condition with this reason; empty:
	// there is none.
	condition    string
	when, remedy string
}

// object is what things are told about.
type object struct {
	title, about string
	told         []told
	// reported: the reasons stand in an annotation, and some in no Event and no condition.
	reported bool
}

const nothing = "Nothing."

const eventsIntro = `# Events and conditions

What Underlay tells about the cluster's objects, where ` + "`kubectl describe`" + ` shows it. An Event says what happened, with names and figures, and is gone after an hour; a condition says how things are. The message of each names the object, the value and what to change; the tables say what is behind a reason.

` + "```sh" + `
kubectl get events --all-namespaces --field-selector reason=RouteTableFull
kubectl get nodes -o custom-columns='NODE:.metadata.name,NETWORK:.status.conditions[?(@.type=="NetworkUnavailable")].reason'
` + "```" + `

Kubernetes' own controllers within ` + "`underlay-ccm`" + ` send the Events ` + "`Synced`" + ` (a Node was initialized), ` + "`DeletingNode`" + ` (its server is gone), ` + "`DeletingNodeFailed`" + ` and, about the lease, ` + "`LeaderElection`" + `.

| condition | of | says |
|---|---|---|
`

// conditions are those that Underlay sets.
func conditions() [][3]string {
	return [][3]string{
		{"NetworkUnavailable", "Node", "True while pods of the Node can't be reached, so that none is scheduled there. Set by underlay-ccm where a family is routed by the cloud, else by the agent. Once False, it becomes True again only when a complete look at the table shows that the route is missing."},
		{"underlay.dev/PodCIDRsAllocated", "Node", "False while the Node can't be given podCIDRs. A Node that never had to wait doesn't have it."},
		{"underlay.dev/PeersReachable", "Node", "False while the Node lacks the route to the pods of another, or its own network is not ready: its packet filter, kernel settings or CNI configuration. Set by the agent, whoever sets NetworkUnavailable."},
		{"underlay.dev/AddressesMatch", "Node", "False while the kubelet was given an address that is not its machine's: the Node stays uninitialized, and the message says which. A Node for which that never was so doesn't have it."},
		{"underlay.dev/VSwitchMember", "Node", "False while Robot says that the Node's dedicated server has no working place in the vSwitch over which its pods are to be reached, Unknown while its port is being configured again. It stays as it is while Robot doesn't answer. A Node whose server never lacked its place doesn't have it. Nothing else depends on it: routes and podCIDRs stay."},
		{"underlay.dev/Accepted", "Service", "Whether the load balancer is all that the Service asks for, or the Service has all addresses that it asks for. Its message holds every finding."},
		{"underlay.dev/ManagedCertificate", "Service", "True from before a certificate is ordered for the Service until it is removed."},
		{"underlay.dev/AddressesOfOthers", "Service", "True while the Service shows addresses that it had before it had a load balancer of this controller."},
	}
}

// TestDocumentEvents keeps docs/reference/events.md equal to the tables.
func TestDocumentEvents(t *testing.T) {
	var b strings.Builder
	b.WriteString(generated("the tables in test/checks/docs, which are compared with the code,") + eventsIntro)
	for _, c := range conditions() {
		b.WriteString(row(code(c[0]), c[1], c[2]))
	}
	for _, o := range objects() {
		b.WriteString("\n## " + o.title + "\n\n" + o.about + "\n\n| reason | Event | condition | when | what to do |\n|---|---|---|---|---|\n")
		sorted := slices.Clone(o.told)
		slices.SortFunc(sorted, func(a, b told) int { return strings.Compare(a.reason, b.reason) })
		for _, r := range sorted {
			b.WriteString(row(code(r.reason), r.event, code(r.condition), r.when, r.remedy))
		}
	}
	comparePage(t, "reference/events.md", b.String())
}

// TestReasons compares the tables with the code, both ways.
func TestReasons(t *testing.T) {
	found, wrong := reasonsIn(sources(t))
	for _, problem := range compareReasons(found, wrong, objects()) {
		t.Error(problem)
	}
}

// TestConditions does the same for types of conditions.
func TestConditions(t *testing.T) {
	inCode := conditionsIn(sources(t))
	for _, c := range conditions() {
		if !slices.Contains(inCode, c[0]) && strings.Contains(c[0], "/") {
			t.Errorf("condition %s is in the table, and nobody sets it", c[0])
		}
	}
	for _, name := range inCode {
		if !slices.ContainsFunc(conditions(), func(c [3]string) bool { return c[0] == name }) {
			t.Errorf("condition %s is not in the table", name)
		}
	}
}

// TestToldIsWhole: no row of the tables lacks what it is for.
func TestToldIsWhole(t *testing.T) {
	for _, o := range objects() {
		for _, r := range o.told {
			if r.when == "" || r.remedy == "" || r.event == "" && r.condition == "" && !o.reported {
				t.Errorf("%s: %s: something is missing", o.title, r.reason)
			}
			name, _, _ := strings.Cut(r.condition, "=")
			if name != "" && !slices.ContainsFunc(conditions(), func(c [3]string) bool { return c[0] == name }) {
				t.Errorf("%s: %s: there is no condition %s", o.title, r.reason, name)
			}
		}
	}
}
