package webui

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

// View is the content of the page.
type View struct {
	// Taken is when collecting began, Trouble the reason why there is no newer Snapshot.
	Taken   time.Time `json:"taken"`
	Trouble string    `json:"trouble,omitempty"`
	// Cluster is a title such as "kubernetes on network cluster, 10.0.0.0/16".
	Cluster string   `json:"cluster"`
	Parts   []Part   `json:"parts"`
	NotSeen []string `json:"notSeen,omitempty"`
}

// Part is the output of one command. About of each row names an object, or the row in its part.
type Part struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	table.Page
}

// ViewOf builds the page from a Snapshot.
func ViewOf(live survey.Live) *View {
	s := live.Snapshot
	v := &View{Taken: s.Taken, Trouble: live.Trouble, Cluster: cluster(s), NotSeen: s.NotSeen()}
	v.add("findings", "Findings", doctor.Diagnose(s).Page())
	for _, c := range []struct {
		id, title string
		of        func(*survey.Snapshot) (table.Page, error)
	}{
		{"nodes", "Nodes", survey.NodesOf},
		{"lb", "Load balancers", survey.LoadBalancersOf},
		{"addresses", "Addresses", survey.AddressesOf},
		{"routes", "Routes", survey.RoutesOf},
		{"pools", "Pools of podCIDRs", survey.PoolsOf},
	} {
		page, err := c.of(s)
		if err != nil {
			page = table.Page{Notes: []string{err.Error()}}
		}
		v.add(c.id, c.title, page)
	}
	return v
}

func (v *View) add(id, title string, page table.Page) {
	for _, gap := range page.NotSeen {
		if !slices.Contains(v.NotSeen, gap) {
			v.NotSeen = append(v.NotSeen, gap)
		}
	}
	page.NotSeen = nil
	page.Tables = slices.DeleteFunc(page.Tables, func(t table.Table) bool { return len(t.Rows) == 0 })
	for i := range page.Tables {
		t := &page.Tables[i]
		t.Rows = slices.DeleteFunc(t.Rows, func(r table.Row) bool { return r.Narrow })
		for j := range t.Rows {
			if r := &t.Rows[j]; r.About == "" {
				r.About = id + "/" + r.Cells[0].Text
			}
		}
	}
	v.Parts = append(v.Parts, Part{id, title, page})
}

func cluster(s *survey.Snapshot) string {
	switch {
	case !s.Saw(survey.PartConfig):
		return ""
	case s.Config.Provider == config.Metal:
		return s.Config.ClusterName + " on machines of its own"
	case s.Network != nil:
		return fmt.Sprintf("%s on network %s, %s", s.Config.ClusterName, s.Network.Name,
			s.Network.IPRange)
	}
	return s.Config.ClusterName
}

// Hit is an object that matches a search, with the matching text.
type Hit struct {
	About string `json:"about"`
	Why   string `json:"why"`
}

// Find searches all cells. An address also matches prefixes that contain it. It returns at most
// limit Hits, and the number of all matches.
func (v *View) Find(text string, limit int) (hits []Hit, all int) {
	hits = []Hit{}
	q := query{text: strings.ToLower(strings.TrimSpace(text))}
	if q.text == "" {
		return hits, 0
	}
	q.prefix = prefixOf(q.text)
	found := map[string]bool{}
	for _, part := range v.Parts {
		for _, t := range part.Tables {
			for _, row := range t.Rows {
				why := q.in(row)
				if why == "" || found[row.About] {
					continue
				}
				found[row.About] = true
				if all++; len(hits) < limit {
					hits = append(hits, Hit{row.About, why})
				}
			}
		}
	}
	return hits, all
}

// query is a search text, and its prefix if it is an address or a prefix.
type query struct {
	text   string
	prefix netip.Prefix
}

// in returns the text of the first matching cell, empty if there is none.
func (q query) in(row table.Row) string {
	for _, c := range row.Cells {
		if !q.prefix.IsValid() {
			if strings.Contains(strings.ToLower(c.Text), q.text) {
				return c.Text
			}
			continue
		}
		separator := func(r rune) bool { return r == ',' || r == ' ' || r == ';' }
		for word := range strings.FieldsFuncSeq(c.Text, separator) {
			if p := prefixOf(word); p.Overlaps(q.prefix) {
				return word
			}
		}
	}
	return ""
}

// prefixOf returns the prefix of an address or a prefix, else the zero Prefix.
func prefixOf(text string) netip.Prefix {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a.WithZone(""), a.BitLen())
	}
	p, _ := netip.ParsePrefix(text)
	return p.Masked()
}
