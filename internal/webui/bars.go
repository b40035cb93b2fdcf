package webui

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
)

// Bar is how full something is.
type Bar struct {
	Name string `json:"name"`
	// Of is what is counted, such as "10.244.0.0/16 in /24".
	Of string `json:"of,omitempty"`
	// State is in words, such as "240 of 256 free".
	State string    `json:"state"`
	Tone  Tone      `json:"tone"`
	Parts []BarPart `json:"parts"`
	Note  string    `json:"note,omitempty"`
}

// BarPart is a part of a Bar. Those with the count 0 are left out.
type BarPart struct {
	// Kind is used, quarantined, foreign, excluded, free; and of routes ours, stale,
	// ambiguous, foreign, reserve.
	Kind  string `json:"kind"`
	Label string `json:"label"`
	Count string `json:"count"`
	// Share is of the whole, from 0 to 1.
	Share float64 `json:"share"`
}

func (b *Bar) add(kind, label string, count uint64, total float64) {
	if count == 0 || total <= 0 {
		return
	}
	share := math.Round(float64(count)/total*1e4) / 1e4
	b.Parts = append(b.Parts, BarPart{kind, label, number(count), share})
}

// number is short where nobody counts: 2^64 addresses are many.
func number(n uint64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.1e", float64(n))
	}
	return strconv.FormatUint(n, 10)
}

// pools adds the pools of podCIDRs before those of addresses.
func (v *View) pools(s *survey.Snapshot) {
	view, err := survey.PoolsOf(s)
	v.note(s, "pools", err)
	bars := []Bar{}
	for i := range view.Pools {
		bars = append(bars, poolBar(&view.Pools[i]))
	}
	v.Pools = append(bars, v.Pools...)
	if view.Room != nil {
		v.Room = fmt.Sprintf("room for %d more Nodes", *view.Room)
	}
	v.Notes = append(v.Notes, view.Removed...)
	if len(view.Pools) == 0 && err == nil {
		v.Notes = append(v.Notes, view.Notes...)
	}
}

func poolBar(p *survey.PoolRow) Bar {
	bar := Bar{
		Name: p.Name, Of: fmt.Sprintf("%s in /%d", p.CIDR, p.Mask), Tone: OK,
		State: fmt.Sprintf("%s of %s free", number(p.Free), number(p.Capacity)),
	}
	if p.Unlimited {
		bar.Of, bar.State = fmt.Sprintf("/%d of each server's own", p.Mask), number(p.Used)+" used"
		return bar
	}
	if p.State != "active" {
		bar.State = p.State + ", " + bar.State
	}
	total := float64(p.Capacity)
	bar.add("used", "used", p.Used, total)
	bar.add("quarantined", "in quarantine", p.Quarantined, total)
	bar.add("foreign", "foreign", p.Foreign, total)
	bar.add("excluded", "excluded", p.Excluded, total)
	bar.add("free", "free", p.Free, total)
	switch {
	case p.State != "active":
	case p.Free == 0:
		bar.Tone = Bad
	case p.Free*10 < p.Capacity:
		bar.Tone = Waits
	}
	return bar
}

func addressBars(v *survey.AddressesView) []Bar {
	var bars []Bar
	for i := range v.Pools {
		p := &v.Pools[i]
		bar := Bar{
			Name: p.Name + " " + p.Family, Of: strings.Join(p.Ranges, ", ") + ", " + p.Mover, Tone: OK,
			State: fmt.Sprintf("%s of %s addresses free", number(p.Free), number(p.Size)),
		}
		bar.add("used", "used", p.Used, float64(p.Size))
		bar.add("free", "free", p.Free, float64(p.Size))
		if p.Free == 0 {
			bar.Tone = Bad
		}
		bars = append(bars, bar)
	}
	return bars
}
