package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/addresses"
)

func (p *plan) holding(e addresses.Entry) (notes []note) {
	for _, m := range p.fleet.members {
		if !e.HeldBy(m.name) {
			continue
		}
		for _, problem := range m.report.Refused {
			if problem.Address == e.Address && problem.Reason == addresses.InUse {
				notes = append(notes, note{reason: string(addresses.InUse), text: inUse(m, problem)})
			}
		}
	}
	if pool, known := poolOf(p.pools, e.Address); known && p.unheld(e) != "" {
		notes = append(notes, p.noHolder(e, pool))
	}
	return notes
}

func inUse(m member, problem addresses.Problem) string {
	text := "node %s does not hold %s, because another machine replies for it"
	if slices.ContainsFunc(m.report.Held, func(h addresses.Hold) bool {
		return h.Address == problem.Address
	}) {
		text = "node %s holds %s, and another machine replies for it too"
	}
	text = fmt.Sprintf(text, m.name, problem.Address)
	if problem.By != "" {
		text += " (" + problem.By + ")"
	}
	return text + ": take the address off that machine, or out of the pool"
}

// noHolder returns a note with the reasons that exclude all nodes, each reason once.
func (p *plan) noHolder(e addresses.Entry, pool Pool) note {
	var causes []string
	counts := make(map[string]int)
	for _, m := range p.fleet.members {
		why := p.fleet.ineligibleReason(m, e, pool, p.serving(e))
		if counts[why]++; counts[why] == 1 {
			causes = append(causes, why)
		}
	}
	n := note{reason: reasonNoNode, text: fmt.Sprintf("no node may hold %s now: ", e.Address)}
	switch {
	case len(causes) == 0:
		n.text += "there is no Node"
	case e.Local() && counts[whyEndpoints] > 0:
		// Scaling a Deployment to zero deserves no warning.
		n.quiet = true
		n.text += "with externalTrafficPolicy: Local a node needs a ready endpoint of the Service"
	case counts[whySilent] > 0:
		n.text += fmt.Sprintf("%s; let packet filters pass the nodes' checks of each other at the ports %d and %d, and see the Nodes' annotation %s",
			strings.Join(causes, ", "), addresses.ProxyPort, addresses.AgentPort, addresses.ReportAnnotation)
	default:
		n.text += strings.Join(causes, ", ") +
			"; make one Node ready whose underlay-agent runs, and see its annotation " +
			addresses.ReportAnnotation
	}
	return n
}
