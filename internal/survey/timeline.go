package survey

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/table"
)

// inspection collects the facts and the timeline of one object.
type inspection struct {
	s        *Snapshot
	object   string
	facts    table.Table
	timeline []entry
	notSeen  []string
}

// entry is an entry of the timeline. A bad one is or was a problem.
type entry struct {
	time         time.Time
	source, text string
	bad          bool
}

// The parts of inspections, of which only the object itself is required.
const (
	InspectNodeParts    = NodesParts | PartAddresses | PartEvents
	InspectServiceParts = LoadBalancersParts | PartAddresses | PartEvents
)

// ErrNoObject is returned if the Node or Service does not exist.
var ErrNoObject = errors.New("there is none")

// ParseObject parses Node/NAME or Service/NAMESPACE/NAME, and returns the parts to collect and
// the function that inspects the object.
func ParseObject(object string) (Want, func(*Snapshot) (table.Page, error), error) {
	switch parts := strings.Split(object, "/"); {
	case len(parts) == 2 && parts[0] == "Node" && parts[1] != "":
		of := func(s *Snapshot) (table.Page, error) { return InspectNode(s, parts[1]) }
		return Want{Parts: InspectNodeParts, Node: parts[1]}, of, nil
	case len(parts) == 3 && parts[0] == "Service" && parts[1] != "" && parts[2] != "":
		name := types.NamespacedName{Namespace: parts[1], Name: parts[2]}
		of := func(s *Snapshot) (table.Page, error) { return InspectService(s, name) }
		return Want{Parts: InspectServiceParts, Service: name}, of, nil
	}
	return Want{}, nil, fmt.Errorf("%q is no Node/NAME and no Service/NAMESPACE/NAME", object)
}

func inspect(s *Snapshot, object string) *inspection {
	return &inspection{
		s: s, object: object, notSeen: s.NotSeen(), facts: table.New("facts", object, "FACT", "VALUE"),
	}
}

// page returns the facts, and the timeline by second: within a second, causes were added before
// their effects.
func (v *inspection) page() table.Page {
	slices.SortStableFunc(v.timeline, func(a, b entry) int {
		return cmp.Compare(a.time.Unix(), b.time.Unix())
	})
	line := table.New("timeline", "What happened", "TIME", "SOURCE", "WHAT")
	for _, e := range v.timeline {
		line.Add(table.Faint.Cell(e.time), e.source, table.Toned(table.OneLine(e.text), table.Bad, e.bad))
	}
	return table.Page{Tables: []table.Table{v.facts, line}, NotSeen: v.notSeen}
}

func (v *inspection) fact(name string, value table.Cell) {
	if value.Text = table.OneLine(value.Text); value.Text != "" && value.Text != table.None {
		v.facts.Add(name, value)
	}
}

func (v *inspection) happened(at time.Time, source, text string, bad bool) {
	if !at.IsZero() {
		v.timeline = append(v.timeline, entry{at, source, text, bad})
	}
}

// rows adds the cells of the rows about the object or with its name, named by their columns, and
// the notes that begin with its name.
func (v *inspection) rows(name string, page table.Page, err error) {
	if err != nil {
		return
	}
	comma := func(r rune) bool { return r == ',' }
	for _, t := range page.Tables {
		for _, r := range t.Rows {
			names := func(c table.Cell) bool {
				return slices.Contains(strings.FieldsFunc(c.Text, comma), name)
			}
			if r.About != v.object && !slices.ContainsFunc(r.Cells, names) {
				continue
			}
			for i, c := range r.Cells {
				if c.Text != name {
					v.fact(strings.ToLower(t.Columns[i].Name), c)
				}
			}
		}
	}
	for _, note := range page.Notes {
		if text, own := strings.CutPrefix(note, name+": "); own {
			v.fact("note", table.Plain.Cell(text))
		}
	}
}

// InspectNode inspects a Node, including a deleted Node with podCIDRs in the ledger.
func InspectNode(s *Snapshot, name string) (table.Page, error) {
	if err := s.Require(PartNodes); err != nil {
		return table.Page{}, err
	}
	v := inspect(s, "Node/"+name)
	node := s.Node(name)
	v.ledger(name)
	if node == nil && len(v.facts.Rows) == 0 {
		return table.Page{},
			fmt.Errorf("Node %s: %w; underlayctl nodes lists those that there are", name, ErrNoObject)
	}
	nodes, err := NodesOf(s)
	v.rows(name, nodes, err)
	if node == nil {
		v.fact("state", table.Plain.Cell("gone; the ledger still holds its podCIDRs"))
	} else {
		v.node(node)
	}
	v.events("Node", "", name)
	return v.page(), nil
}

// node adds the Node's server and addresses, and the transitions of its conditions.
func (v *inspection) node(node *corev1.Node) {
	if server := v.s.ServerOf(node); server != nil {
		v.fact("type", table.Plain.Cell(server.Type+" in "+server.Region))
		v.happened(server.Created, "server", "created", false)
	}
	if v.s.AddressesOn() {
		addresses, err := AddressesOf(v.s)
		v.rows(node.Name, addresses, err)
	}
	v.lifetime("Node", node)
	if manager, at, ok := kube.PodCIDRSetter(node); ok {
		prefixes, _ := kube.PodCIDRs(node)
		v.happened(at, "podCIDRs", fmt.Sprintf("%s written by %s", Join(prefixes, ", "), manager), false)
	}
	for _, c := range node.Status.Conditions {
		good := corev1.ConditionFalse
		if c.Type == corev1.NodeReady || strings.HasPrefix(string(c.Type), "underlay.dev/") {
			good = corev1.ConditionTrue
		}
		v.condition(metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason,
			Message:            c.Message,
			LastTransitionTime: c.LastTransitionTime,
		}, c.Status != good)
	}
	for _, t := range node.Spec.Taints {
		if t.TimeAdded != nil {
			v.happened(t.TimeAdded.Time, "taint", t.ToString(), true)
		}
	}
}

// ledger adds the ledger's entries of a Node's name.
func (v *inspection) ledger(name string) {
	holdings, damage := v.s.Holdings()
	if len(damage) > 0 {
		v.notSeen = append(v.notSeen, "the damaged part of the ledger: "+Join(damage, "; "))
	}
	for _, h := range holdings {
		if h.Node.Name == name {
			v.fact("ledger", table.Plain.Cell(h.Record()))
			v.happened(h.Released, "ledger",
				fmt.Sprintf("Node with UID %s seen to be gone: %s in quarantine",
					h.Node.UID, Join(slices.Concat(h.Prefixes, h.Abandoned), ", ")), false)
		}
	}
}

// InspectService inspects a Service and its load balancer.
func InspectService(s *Snapshot, name types.NamespacedName) (table.Page, error) {
	if err := s.Require(PartServices); err != nil {
		return table.Page{}, err
	}
	svc := s.Service(name)
	if svc == nil {
		return table.Page{},
			fmt.Errorf("Service %s: %w; underlayctl lb lists those that Underlay serves", name, ErrNoObject)
	}
	v := inspect(s, "Service/"+name.String())
	v.fact("type", table.Plain.Cell(string(svc.Spec.Type)))
	v.fact("externalTrafficPolicy", table.Plain.Cell(string(svc.Spec.ExternalTrafficPolicy)))
	v.lifetime("Service", svc)
	if s.Saw(PartConfig) {
		v.served(svc)
	}
	for _, c := range svc.Status.Conditions {
		v.condition(c, c.Status == metav1.ConditionFalse)
	}
	v.events("Service", name.Namespace, name.Name)
	return v.page(), nil
}

// served adds the Service's load balancer, or the nodes that hold its addresses.
func (v *inspection) served(svc *corev1.Service) {
	name, before := NameOf(svc).String(), len(v.facts.Rows)
	if v.s.AddressesOn() && v.s.WantsAddress(svc) {
		v.fact("published", table.Plain.Cell(published(svc)))
		all, err := AddressesOf(v.s)
		v.rows(name, all, err)
		return
	}
	all, err := LoadBalancersOf(v.s)
	if v.rows(name, all, err); err == nil && len(v.facts.Rows) == before {
		v.fact("served", table.Plain.Cell("not by Underlay, because of its type, its loadBalancerClass or the configuration"))
	}
	if b := v.s.balancerOf(NameOf(svc)); b != nil {
		v.happened(b.Created, "load balancer", "created", false)
	}
}

// lifetime adds the creation of an object, and the request to delete it.
func (v *inspection) lifetime(kind string, o metav1.Object) {
	v.happened(o.GetCreationTimestamp().Time, kind, "created", false)
	if at := o.GetDeletionTimestamp(); at != nil {
		v.happened(at.Time, kind, "deletion requested", true)
	}
}

func (v *inspection) condition(c metav1.Condition, bad bool) {
	text := strings.TrimSpace(c.Type + "=" + string(c.Status) + " " + c.Reason)
	if c.Message != "" {
		text += ": " + c.Message
	}
	v.happened(c.LastTransitionTime.Time, "condition", text, bad)
}

// events adds an object's Events at the time of their last occurrence.
func (v *inspection) events(kind, namespace, name string) {
	for _, e := range v.s.Events {
		about := e.InvolvedObject
		if about.Kind != kind || about.Name != name || namespace != "" && about.Namespace != namespace {
			continue
		}
		text := e.Reason + ": " + strings.TrimSpace(e.Message)
		if e.Source.Component != "" {
			text += " (" + e.Source.Component + ")"
		}
		last, first := EventTime(e), e.FirstTimestamp.Time
		if e.Count > 1 && first.Before(last) && !first.IsZero() {
			text += fmt.Sprintf(" (%d times since %s)", e.Count, clock(first))
		}
		v.happened(last, "Event", text, e.Type != corev1.EventTypeNormal)
	}
}
