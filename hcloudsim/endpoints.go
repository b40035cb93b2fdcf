package hcloudsim

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// operation is one row of the API's surface, with the path as in the description.
type operation struct {
	method, path string
	do           endpoint
}

// operations returns all simulated operations. Other operations return 404, like unknown paths.
func operations() []operation {
	return slices.Concat(actionOperations(), catalogOperations(), serverOperations(),
		imageOperations(), sshKeyOperations(), placementGroupOperations(), volumeOperations(),
		firewallOperations(), certificateOperations(), networkOperations(),
		loadBalancerOperations(), primaryIPOperations(), floatingIPOperations())
}

func actionOperations() []operation {
	return []operation{
		{"GET", "/actions", (*call).listActions},
		{"GET", "/actions/{id}", getAction("", "id")},
	}
}

// routes builds the router. ServeMux rejects "/x/actions/{id}" and "/x/{id}/actions" as
// conflicting, because both match "/x/actions/actions"; so the latter paths are registered as
// "/x/{id}/{listing}" and dispatched here.
func (s *Simulator) routes() *http.ServeMux {
	mux := http.NewServeMux()
	listings := map[string]map[string]endpoint{}
	for _, op := range operations() {
		collection, listing, nested := strings.Cut(op.path, "/{id}/")
		if !nested || strings.Contains(listing, "/") {
			mux.HandleFunc(op.method+" "+op.path, s.serve(op.do))
			continue
		}
		pattern := op.method + " " + collection + "/{id}/{listing}"
		if listings[pattern] == nil {
			listings[pattern] = map[string]endpoint{}
		}
		listings[pattern][listing] = op.do
	}
	for pattern, byName := range listings {
		mux.HandleFunc(pattern, s.serve(func(c *call) (reply, error) {
			do, known := byName[c.request.PathValue("listing")]
			if !known {
				return reply{}, errNoSuchPath()
			}
			return do(c)
		}))
	}
	mux.HandleFunc("/", s.serve(func(c *call) (reply, error) { return reply{}, noOperation(mux, c.request) }))
	return mux
}

// noOperation distinguishes an unsupported method of a known path from an unknown path. The path
// of an action that is not simulated only resembles that of a past action.
func noOperation(mux *http.ServeMux, r *http.Request) error {
	if at, name := path.Split(r.URL.Path); strings.HasSuffix(at, "/actions/") && !isID(name) {
		return errNoSuchPath()
	}
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" {
			return errMethod()
		}
	}
	return errNoSuchPath()
}
