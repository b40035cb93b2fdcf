package state

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// RequestCount counts requests to the cloud.
type RequestCount struct {
	Method, Path string // an object's ID is {id} in the path
	Count        int
	// NotFound counts requests for a deleted object, which are a valid result.
	NotFound int
	// Refused counts all other errors.
	Refused int
}

// CountRequests summarizes the cloud's log, by path, then method.
func CountRequests(log []hcloudsim.Request) []RequestCount {
	counts := map[[2]string]*RequestCount{}
	for _, r := range log {
		path := withoutIDs(r.Path)
		k := [2]string{path, r.Method}
		if counts[k] == nil {
			counts[k] = &RequestCount{Method: r.Method, Path: path}
		}
		c := counts[k]
		c.Count++
		switch {
		case r.Method == http.MethodGet && r.Status == http.StatusNotFound:
			c.NotFound++
		case r.Status >= http.StatusBadRequest || r.Status == 0:
			c.Refused++
		}
	}
	var all []RequestCount
	for _, c := range counts {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b RequestCount) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return all
}

func withoutIDs(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/v1"), "/")
	for i, part := range parts {
		if part != "" && strings.Trim(part, "0123456789") == "" {
			parts[i] = "{id}"
		}
	}
	return strings.Join(parts, "/")
}

// WriteCount is how often Underlay's controllers wrote to a Node.
type WriteCount struct {
	Node         string
	IPAM, Routes int
}

// Sum is all writes to the Node.
func (c WriteCount) Sum() int { return c.IPAM + c.Routes }

// Names of the controllers in their user agent.
const (
	ipamAgent  = "node-ipam-controller"
	routeAgent = "node-route-controller"
)

// CountWrites summarizes the audit log, by Node. Rejected writes count too.
func CountWrites(log []controlplane.AuditEvent) []WriteCount {
	counts := map[string]WriteCount{}
	for _, e := range log {
		if e.Resource != "nodes" {
			continue
		}
		c := counts[e.Name]
		c.Node = e.Name
		switch {
		case strings.HasSuffix(e.UserAgent, ipamAgent):
			c.IPAM++
		case strings.HasSuffix(e.UserAgent, routeAgent):
			c.Routes++
		default:
			continue
		}
		counts[e.Name] = c
	}
	return slices.SortedFunc(maps.Values(counts), func(a, b WriteCount) int {
		return cmp.Compare(a.Node, b.Node)
	})
}
