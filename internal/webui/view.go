package webui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
)

// View is all that the page shows.
type View struct {
	// Taken is when the look began.
	Taken time.Time `json:"taken"`
	// Cluster names what is looked at, such as "kubernetes on network cluster".
	Cluster  string     `json:"cluster"`
	Counts   Counts     `json:"counts"`
	Services []Service  `json:"services"`
	Groups   []Group    `json:"groups"`
	Table    RouteTable `json:"table"`
	Pools    []Bar      `json:"pools"`
	// Room says how many more Nodes can get podCIDRs; empty: there is no limit.
	Room     string    `json:"room,omitempty"`
	Findings []Finding `json:"findings"`
	// Notes are about the whole, NotSeen is what the look could not see.
	Notes   []string `json:"notes,omitempty"`
	NotSeen []string `json:"notSeen,omitempty"`
}

// Tone says how something fares. The page gives each a color and a shape.
type Tone string

// The tones, best first.
const (
	OK      Tone = "ok"
	Unknown Tone = "off"  // not seen, or no longer there
	Waits   Tone = "wait" // on its way, or less than it could be
	Bad     Tone = "bad"
)

// worstFirst compares for sorting.
func worstFirst(a, b Tone) int {
	order := []Tone{Bad, Waits, Unknown, OK}
	return slices.Index(order, a) - slices.Index(order, b)
}

func worse(a, b Tone) Tone {
	if worstFirst(a, b) <= 0 {
		return a
	}
	return b
}

// Counts are the numbers at the top of the page.
type Counts struct {
	// Machines are those that are Nodes; of them Waiting wait, and Failing have trouble.
	Machines int `json:"machines"`
	Waiting  int `json:"waiting"`
	Failing  int `json:"failing"`
	// Services are those that have or want a load balancer or an address; Unserved are
	// those of them that don't fare well.
	Services int `json:"services"`
	Unserved int `json:"unserved"`
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
}

// Finding is one of doctor's. ID is the Machine or Service that it is about, if the
// page shows that.
type Finding struct {
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Tone     Tone   `json:"tone"`
	Object   string `json:"object,omitempty"`
	ID       string `json:"id,omitempty"`
	What     string `json:"what"`
	Remedy   string `json:"remedy,omitempty"`
}

// Parts are those that ViewOf shows; all else of a Snapshot it has no use for.
const Parts = survey.Everything

// ViewOf makes the page of a look.
func ViewOf(s *survey.Snapshot) View {
	v := View{Taken: s.Taken, Cluster: cluster(s), NotSeen: s.NotSeen()}
	found := doctor.Examine(s)
	machines, err := machinesOf(s, troubled(found))
	v.note(s, "machines", err)
	v.Services = v.services(s)
	v.Table = v.table(s)
	v.pools(s)
	v.Groups = groupsOf(machines)
	v.Findings = findingsOf(found, v.ids(machines))
	v.count(machines)
	return v
}

// note says why something is not shown, unless NotSeen says it.
func (v *View) note(s *survey.Snapshot, what string, err error) {
	if err == nil {
		return
	}
	for _, g := range s.Gaps {
		if strings.Contains(err.Error(), g.Reason) {
			return
		}
	}
	v.Notes = append(v.Notes, what+": "+err.Error())
}

func cluster(s *survey.Snapshot) string {
	switch {
	case !s.Saw(survey.PartConfig):
		return ""
	case s.Config.Provider == config.Metal:
		return s.Config.ClusterName + " on machines of its own"
	case s.Network != nil:
		return fmt.Sprintf("%s on network %s, %s", s.Config.ClusterName, s.Network.Name, s.Network.IPRange)
	}
	return s.Config.ClusterName
}

func (v *View) count(machines []Machine) {
	for i := range machines {
		if machines[i].Gone {
			continue
		}
		v.Counts.Machines++
		switch machines[i].Tone {
		case Waits:
			v.Counts.Waiting++
		case Bad:
			v.Counts.Failing++
		}
	}
	for i := range v.Services {
		v.Counts.Services++
		if v.Services[i].Tone == Bad || v.Services[i].Tone == Waits {
			v.Counts.Unserved++
		}
	}
	for _, f := range v.Findings {
		switch f.Severity {
		case string(doctor.Error):
			v.Counts.Errors++
		case string(doctor.Warning):
			v.Counts.Warnings++
		}
	}
}

// ids are the Machines and Services that the page shows, by doctor's name for each.
func (v *View) ids(machines []Machine) map[string]string {
	ids := make(map[string]string, len(machines)+len(v.Services))
	for i := range machines {
		if name := "Node/" + machines[i].Name; ids[name] == "" {
			ids[name] = machines[i].ID // of one name the Node that there is comes first
		}
	}
	for i := range v.Services {
		ids["Service/"+v.Services[i].Name] = v.Services[i].ID
	}
	return ids
}

// troubled are the objects that doctor calls in error.
func troubled(found []doctor.Finding) map[string]bool {
	out := map[string]bool{}
	for _, f := range found {
		if f.Severity == doctor.Error {
			out[f.Object] = true
		}
	}
	return out
}

// findingsOf has one row for all checks that were not made for the same cause.
func findingsOf(found []doctor.Finding, ids map[string]string) []Finding {
	tones := map[doctor.Severity]Tone{doctor.Error: Bad, doctor.Warning: Waits, doctor.Info: Unknown}
	unmade := map[string][]string{}
	for _, f := range found {
		if f.Severity == doctor.Info {
			unmade[f.What] = append(unmade[f.What], f.Check)
		}
	}
	out := []Finding{}
	for _, f := range found {
		row := Finding{f.Check, string(f.Severity), tones[f.Severity], f.Object, ids[f.Object], f.What, f.Remedy}
		if same := unmade[f.What]; f.Severity == doctor.Info && len(same) > 1 {
			if f.Check != same[0] {
				continue
			}
			row.Check, row.Object, row.ID = fmt.Sprintf("%d checks", len(same)), "", ""
			row.What += ": " + strings.Join(same, ", ")
			row.Remedy = "give underlayctl what it needs to see it"
		}
		out = append(out, row)
	}
	return out
}
