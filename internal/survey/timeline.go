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

// Inspection holds the facts and the timeline of one object, in chronological order.
type Inspection struct {
	Object   string   `json:"object"`
	Facts    []Fact   `json:"facts"`
	Timeline []Entry  `json:"timeline"`
	NotSeen  []string `json:"notSeen,omitempty"`
}

// Fact is a current property, mostly a cell of a row about the object, named by its column.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	tone  table.Tone
}

// rows adds the rows about the object or with its name, and the notes that begin with its name.
func (v *Inspection) rows(name string, page table.Page) {
	comma := func(r rune) bool { return r == ',' }
	for _, t := range page.Tables {
		for _, r := range t.Rows {
			names := func(c table.Cell) bool { return slices.Contains(strings.FieldsFunc(c.Text, comma), name) }
			if r.About != v.Object && !slices.ContainsFunc(r.Cells, names) {
				continue
			}
			for i, c := range r.Cells {
				if c.Text != "" && c.Text != table.None && c.Text != name {
					v.Facts = append(v.Facts, Fact{strings.ToLower(t.Columns[i].Name), c.Text, c.Tone})
				}
			}
		}
	}
	for _, note := range page.Notes {
		if text, own := strings.CutPrefix(note, name+": "); own {
			v.fact("note", text)
		}
	}
}

// Entry is an entry of the timeline.
type Entry struct {
	Time   time.Time `json:"time"`
	Source string    `json:"source"`
	What   string    `json:"what"`
	// Bad: the entry is or was a problem.
	Bad bool `json:"bad,omitempty"`
}

// The parts of inspections, of which only the object itself is required.
const (
	InspectNodeParts    = NodesParts | PartAddresses | PartEvents | PartActions
	InspectServiceParts = LoadBalancersParts | PartAddresses | PartEvents | PartActions
)

// ErrNoObject is returned if the Node or Service does not exist.
var ErrNoObject = errors.New("there is none")

// ParseObject parses Node/NAME or Service/NAMESPACE/NAME, and returns the parts to collect and
// the function that inspects the object.
func ParseObject(object string) (Want, func(*Snapshot) (Inspection, error), error) {
	switch parts := strings.Split(object, "/"); {
	case len(parts) == 2 && parts[0] == "Node" && parts[1] != "":
		of := func(s *Snapshot) (Inspection, error) { return InspectNode(s, parts[1]) }
		return Want{Parts: InspectNodeParts, Node: parts[1]}, of, nil
	case len(parts) == 3 && parts[0] == "Service" && parts[1] != "" && parts[2] != "":
		name := types.NamespacedName{Namespace: parts[1], Name: parts[2]}
		of := func(s *Snapshot) (Inspection, error) { return InspectService(s, name) }
		return Want{Parts: InspectServiceParts, Service: name}, of, nil
	}
	return Want{}, nil, fmt.Errorf("%q is no Node/NAME and no Service/NAMESPACE/NAME", object)
}

// InspectNode inspects a Node, including a deleted Node with podCIDRs in the ledger.
func InspectNode(s *Snapshot, name string) (Inspection, error) {
	if err := s.Require(PartNodes); err != nil {
		return Inspection{}, err
	}
	v := Inspection{Object: "Node/" + name, Facts: []Fact{}, Timeline: []Entry{}, NotSeen: s.NotSeen()}
	node := s.Node(name)
	known := v.ledger(s, name)
	if node == nil && !known {
		return Inspection{}, fmt.Errorf("Node %s: %w; underlayctl nodes lists those that there are", name, ErrNoObject)
	}
	nodes, err := NodesOf(s)
	if err != nil {
		return Inspection{}, err
	}
	v.rows(name, nodes.Page())
	if node == nil {
		v.fact("state", "gone; the ledger still holds its podCIDRs")
	} else {
		v.node(s, node)
	}
	v.events(s, "Node", name, "")
	v.sort()
	return v, nil
}

func (v *Inspection) fact(name, value string) {
	if value != "" {
		v.Facts = append(v.Facts, Fact{Name: name, Value: value})
	}
}

func (v *Inspection) happened(at time.Time, source, what string, bad bool) {
	if !at.IsZero() {
		v.Timeline = append(v.Timeline, Entry{at, source, what, bad})
	}
}

// node adds the Node's server and addresses, and the transitions of its conditions.
func (v *Inspection) node(s *Snapshot, node *corev1.Node) {
	if server := s.ServerOf(node); server != nil {
		v.fact("type", server.Type+" in "+server.Region)
		v.happened(server.Created, "server", "created", false)
	}
	if addresses, err := AddressesOf(s); err == nil && s.AddressesOn() {
		v.rows(node.Name, addresses.Page())
	}
	v.actions(s)
	v.happened(node.CreationTimestamp.Time, "Node", "created", false)
	if manager, at, ok := kube.PodCIDRSetter(node); ok {
		prefixes, _ := kube.PodCIDRs(node)
		v.happened(at, "podCIDRs", fmt.Sprintf("%s written by %s", Join(prefixes, ", "), manager), false)
	}
	for _, c := range node.Status.Conditions {
		good := corev1.ConditionFalse
		if c.Type == corev1.NodeReady || strings.HasPrefix(string(c.Type), "underlay.dev/") {
			good = corev1.ConditionTrue
		}
		v.happened(c.LastTransitionTime.Time, "condition", conditionText(string(c.Type), string(c.Status), c.Reason, c.Message), c.Status != good)
	}
	for _, t := range node.Spec.Taints {
		if t.TimeAdded != nil {
			v.happened(t.TimeAdded.Time, "taint", t.ToString(), true)
		}
	}
	if node.DeletionTimestamp != nil {
		v.happened(node.DeletionTimestamp.Time, "Node", "deletion requested", true)
	}
}

// ledger adds the ledger's entries of a Node's name, and reports whether there are any.
func (v *Inspection) ledger(s *Snapshot, name string) bool {
	holdings, damage := s.Holdings()
	if len(damage) > 0 {
		v.NotSeen = append(v.NotSeen, "the damaged part of the ledger: "+Join(damage, "; "))
	}
	found := false
	for _, h := range holdings {
		if h.Node.Name != name {
			continue
		}
		found = true
		v.fact("ledger", h.Record())
		if !h.Released.IsZero() {
			v.happened(h.Released, "ledger", fmt.Sprintf("Node with UID %s seen to be gone: %s in quarantine", h.Node.UID, Join(slices.Concat(h.Prefixes, h.Abandoned), ", ")), false)
		}
	}
	return found
}

// InspectService inspects a Service and its load balancer.
func InspectService(s *Snapshot, name types.NamespacedName) (Inspection, error) {
	if err := s.Require(PartServices); err != nil {
		return Inspection{}, err
	}
	svc := s.Service(name)
	if svc == nil {
		return Inspection{}, fmt.Errorf("Service %s: %w; underlayctl lb lists those that Underlay serves", name, ErrNoObject)
	}
	v := Inspection{Object: "Service/" + name.String(), Facts: []Fact{}, Timeline: []Entry{}, NotSeen: s.NotSeen()}
	v.fact("type", string(svc.Spec.Type))
	v.fact("externalTrafficPolicy", string(svc.Spec.ExternalTrafficPolicy))
	v.happened(svc.CreationTimestamp.Time, "Service", "created", false)
	if svc.DeletionTimestamp != nil {
		v.happened(svc.DeletionTimestamp.Time, "Service", "deletion requested", true)
	}
	if s.Saw(PartConfig) {
		v.served(s, svc)
	}
	v.actions(s)
	for _, c := range svc.Status.Conditions {
		v.happened(c.LastTransitionTime.Time, "condition", conditionText(c.Type, string(c.Status), c.Reason, c.Message), c.Status == metav1.ConditionFalse)
	}
	v.events(s, "Service", name.Name, name.Namespace)
	v.sort()
	return v, nil
}

// served adds the Service's load balancer, or the nodes that hold its addresses.
func (v *Inspection) served(s *Snapshot, svc *corev1.Service) {
	name, before := NameOf(svc).String(), len(v.Facts)
	if s.AddressesOn() && s.WantsAddress(svc) {
		v.fact("published", strings.Join(serviceRow(svc).Published, ", "))
		if all, err := AddressesOf(s); err == nil {
			v.rows(name, all.Page())
		}
		return
	}
	all, err := LoadBalancersOf(s)
	if err != nil {
		return
	}
	v.rows(name, all.Page())
	for _, row := range all.Services {
		if row.Service == name && row.Shared != "" {
			v.fact("shared", row.Shared+", by "+strings.Join(row.SharedBy, ", "))
		}
	}
	if len(v.Facts) == before {
		v.fact("served", "not by Underlay, because of its type, its loadBalancerClass or the configuration")
	}
	if b := s.balancerOf(NameOf(svc)); b != nil {
		v.happened(b.Created, "load balancer", "created", false)
	}
}

// events adds an object's Events at the time of their last occurrence.
func (v *Inspection) events(s *Snapshot, kind, name, namespace string) {
	for _, e := range s.Events {
		about := e.InvolvedObject
		if about.Kind != kind || about.Name != name || namespace != "" && about.Namespace != namespace {
			continue
		}
		text := e.Reason + ": " + strings.TrimSpace(e.Message)
		if e.Source.Component != "" {
			text += " (" + e.Source.Component + ")"
		}
		last, first, bad := EventTime(e), e.FirstTimestamp.Time, e.Type != corev1.EventTypeNormal
		if e.Count > 1 && first.Before(last) && !first.IsZero() {
			text += fmt.Sprintf(" (%d times since %s)", e.Count, first.UTC().Format(time.RFC3339))
		}
		v.happened(last, "Event", text, bad)
	}
}

func (v *Inspection) actions(s *Snapshot) {
	for _, a := range s.Actions {
		source := strings.ReplaceAll(a.Kind, "_", " ")
		began := a.Command + " began"
		if a.Finished.IsZero() {
			began += ", and is " + a.Status
		}
		v.happened(a.Started, source, began, false)
		if a.Error != "" {
			v.happened(a.Finished, source, a.Command+" failed: "+a.Error, true)
		} else {
			v.happened(a.Finished, source, a.Command+" done", false)
		}
	}
	if s.OlderActions > 0 {
		v.NotSeen = append(v.NotSeen, fmt.Sprintf("%s: only the newest are read, %d more are older", PartActions, s.OlderActions))
	}
}

// sort sorts by second, and keeps causes before their effects within a second.
func (v *Inspection) sort() {
	slices.SortStableFunc(v.Timeline, func(a, b Entry) int {
		return cmp.Compare(a.Time.Unix(), b.Time.Unix())
	})
}

func conditionText(kind, status, reason, message string) string {
	text := kind + "=" + status
	if reason != "" {
		text += " " + reason
	}
	if message != "" {
		text += ": " + message
	}
	return text
}

func serverID(n *corev1.Node) (int64, bool) {
	id, err := kube.ParseProviderID(n.Spec.ProviderID)
	return id, err == nil
}
