package webui

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/survey"
)

// Subject is a Node or a Service whose timeline is asked for.
type Subject struct {
	Node string
	// Former is the UID of a Node that is gone and is not the only one of its name. What is
	// known of that name is told, with whose it may be.
	Former  string
	Service types.NamespacedName
}

// ParseSubject reads an ID of a Machine or a Service. Others have no timeline.
func ParseSubject(id string) (Subject, error) {
	kind, name, _ := strings.Cut(id, "/")
	parts := strings.Split(name, "/")
	switch {
	case kind == "node" && parts[0] != "":
		_, uid, _ := strings.Cut(name, "/")
		return Subject{Node: parts[0], Former: uid}, nil
	case kind == "service" && len(parts) == 2 && parts[0] != "" && parts[1] != "":
		return Subject{Service: types.NamespacedName{Namespace: parts[0], Name: parts[1]}}, nil
	}
	return Subject{}, fmt.Errorf("%q is no Node and no Service: ask for node/NAME or service/NAMESPACE/NAME", id)
}

// Want is what is to be looked at for its timeline.
func (x Subject) Want() survey.Want {
	if x.Node != "" {
		return survey.Want{Parts: survey.InspectNodeParts, Node: x.Node}
	}
	return survey.Want{Parts: survey.InspectServiceParts, Service: x.Service}
}

// Inspect tells all that is known of it.
func (x Subject) Inspect(s *survey.Snapshot) (survey.Inspection, error) {
	if x.Node == "" {
		return survey.InspectService(s, x.Service)
	}
	told, err := survey.InspectNode(s, x.Node)
	if err == nil && x.Former != "" {
		const others = "; other Nodes have or had its name, and all that follows may be theirs but what names this UID"
		asked := survey.Fact{Name: "asked for", Value: "the former Node with UID " + x.Former + others}
		told.Facts = slices.Insert(told.Facts, 0, asked)
	}
	return told, err
}
