package main

import (
	"context"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/connectivity"
	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
)

// causes are what doctor finds of the kinds and about the nodes of findings. That it
// can't look is no failure of connectivity.
func (o *options) causes(ctx context.Context, w process, all []connectivity.Finding) ([]doctor.Finding, []string) {
	s, err := o.look(ctx, w, survey.Want{Parts: survey.Everything})
	if err != nil {
		return nil, []string{"what doctor says: " + err.Error()}
	}
	return related(doctor.Examine(s), all), s.NotSeen()
}

func related(known []doctor.Finding, all []connectivity.Finding) []doctor.Finding {
	var out []doctor.Finding
	for _, d := range known {
		if d.Severity == doctor.Info {
			continue
		}
		node, about := strings.CutPrefix(d.Object, "Node/")
		if slices.ContainsFunc(all, func(f connectivity.Finding) bool {
			return slices.Contains(f.Checks, d.Check) && (!about || slices.Contains(f.Nodes, node))
		}) {
			out = append(out, d)
		}
	}
	return out
}
