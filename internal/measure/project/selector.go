package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// CheckSelectors finds out, before anything is made, whether a load balancer of the project would
// send its traffic to the run's servers, or a firewall would be theirs: those select servers by
// labels, and a selector such as "env!=test" selects new ones too. The error names each, and what
// to do.
func (p *Project) CheckSelectors(ctx context.Context) error {
	if p.plan.Servers == 0 {
		return nil
	}
	var found []error
	for _, s := range []struct{ collection, does string }{
		{"load_balancers", "load balancer %q would send traffic to the run's servers"},
		{"firewalls", "firewall %q would apply to the run's servers"},
	} {
		rows, err := p.selecting(ctx, s.collection)
		if err != nil {
			return fmt.Errorf("looking for selectors of labels: %w", err)
		}
		for _, row := range rows {
			for _, selector := range row.selectors() {
				if selects(selector, p.Labels()) {
					found = append(found, fmt.Errorf(s.does+": its selector %q selects servers without "+
						"a label too: add \",!%s\" to the selector, or measure in another project",
						row.Name, selector, Label))
				}
			}
		}
	}
	return errors.Join(found...)
}

// selecting is what may select servers, as the API shows it.
type selecting struct {
	Name    string    `json:"name"`
	Targets []applied `json:"targets"`    // of a load balancer
	Applied []applied `json:"applied_to"` // of a firewall
}

type applied struct {
	LabelSelector *struct {
		Selector string `json:"selector"`
	} `json:"label_selector"`
}

func (s selecting) selectors() []string {
	var all []string
	for _, a := range append(s.Targets, s.Applied...) {
		if a.LabelSelector != nil {
			all = append(all, a.LabelSelector.Selector)
		}
	}
	return all
}

// selecting lists a collection. One that the API doesn't have is empty.
func (p *Project) selecting(ctx context.Context, collection string) ([]selecting, error) {
	var all []selecting
	for page := 1; page != 0; {
		if page > pagesMost {
			return nil, fmt.Errorf("listing %s: the pages have no end", collection)
		}
		var reply map[string]json.RawMessage
		path := fmt.Sprintf("/%s?page=%d&per_page=%d", collection, page, pageSize)
		err := p.ask(ctx, http.MethodGet, path, &reply)
		if hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", collection, err)
		}
		var rows []selecting
		if err := json.Unmarshal(reply[collection], &rows); err != nil {
			return nil, fmt.Errorf("listing %s: the reply has none", collection)
		}
		meta, err := readPagination(reply)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", collection, err)
		}
		all, page = append(all, rows...), meta.Next
	}
	return all, nil
}

// selects reports whether a selector selects what has these labels. One that isn't understood
// does.
func selects(selector string, labels map[string]string) bool {
	for _, term := range terms(selector) {
		if !holds(term, labels) {
			return false
		}
	}
	return true
}

// terms splits a selector at the commas that aren't in parentheses.
func terms(selector string) []string {
	depth := 0
	all := strings.FieldsFunc(selector, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return r == ',' && depth == 0
	})
	return all
}

// holds reports whether labels fulfill a term: "k", "!k", "k=v", "k==v", "k!=v", "k in (v, w)" or
// "k notin (v, w)".
func holds(term string, labels map[string]string) bool {
	term = strings.TrimSpace(term)
	if list, is := strings.CutSuffix(term, ")"); is {
		words, list, _ := strings.Cut(list, "(")
		parts := strings.Fields(words)
		if len(parts) != 2 || parts[1] != "in" && parts[1] != "notin" {
			return true
		}
		value, has := labels[parts[0]]
		among := slices.ContainsFunc(strings.Split(list, ","), func(v string) bool {
			return strings.TrimSpace(v) == value
		})
		return (has && among) == (parts[1] != "notin")
	}
	if key, wanted, is := strings.Cut(term, "!="); is {
		value, has := labels[strings.TrimSpace(key)]
		return !has || value != strings.TrimSpace(wanted)
	}
	if key, wanted, is := strings.Cut(term, "="); is {
		value, has := labels[strings.TrimSpace(key)]
		return has && value == strings.TrimSpace(strings.TrimPrefix(wanted, "="))
	}
	if key, is := strings.CutPrefix(term, "!"); is {
		_, has := labels[strings.TrimSpace(key)]
		return !has
	}
	_, has := labels[term]
	return has
}
