package webui

import (
	"net/netip"
	"strings"

	"github.com/underlay-ccm/underlay/internal/table"
)

// Hit is an object that a search found, and the text in which it was found.
type Hit struct {
	About string `json:"about"`
	Why   string `json:"why"`
}

// Find searches all cells. An address is also found in a prefix that contains it. At most
// limit Hits come back, and how many there are in all.
func (v *View) Find(text string, limit int) (hits []Hit, all int) {
	hits = []Hit{}
	q := query{text: strings.ToLower(strings.TrimSpace(text))}
	if q.text == "" {
		return hits, 0
	}
	if a, err := netip.ParseAddr(q.text); err == nil {
		q.prefix = netip.PrefixFrom(a, a.BitLen())
	} else if p, err := netip.ParsePrefix(q.text); err == nil {
		q.prefix = p.Masked()
	}
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

// query is what is searched, as text, and as a prefix if it is an address or a prefix.
type query struct {
	text   string
	prefix netip.Prefix
}

// in is the text of the first cell that has it, empty if none does.
func (q query) in(row table.Row) string {
	for _, c := range row.Cells {
		if !q.prefix.IsValid() && strings.Contains(strings.ToLower(c.Text), q.text) {
			return c.Text
		}
		for word := range strings.FieldsFuncSeq(c.Text, func(r rune) bool { return r == ',' || r == ' ' || r == ';' }) {
			if q.prefix.IsValid() && q.meets(word) {
				return word
			}
		}
	}
	return ""
}

func (q query) meets(word string) bool {
	if a, err := netip.ParseAddr(word); err == nil {
		return q.prefix.Contains(a)
	}
	p, err := netip.ParsePrefix(word)
	return err == nil && p.Overlaps(q.prefix)
}
