package conformance_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
)

// specVariable names the file with the description.
const specVariable = "UNDERLAY_CLOUD_SPEC"

// description is Hetzner's, ready to validate by.
type description struct {
	document *openapi3.T
	router   routers.Router
}

func loadDescription(t *testing.T) description {
	t.Helper()
	file := os.Getenv(specVariable)
	if file == "" {
		complete.Skip(t, specVariable+" is not set: it names the file with Hetzner's OpenAPI description, which is not part of the project")
	}
	document, err := openapi3.NewLoader().LoadFromFile(file)
	if err != nil {
		t.Fatalf("loading the description that %s names: %v", specVariable, err)
	}
	for _, path := range document.Paths.Map() {
		for _, operation := range path.Operations() {
			// It writes 4xx where OpenAPI has 4XX.
			for status, response := range operation.Responses.Map() {
				operation.Responses.Set(strings.ToUpper(status), response)
			}
		}
	}
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		t.Fatalf("reading the paths of the description: %v", err)
	}
	return description{document, router}
}

// operations are all that the description has, as "METHOD /path".
func (d description) operations() map[string]bool {
	all := map[string]bool{}
	for path, item := range d.document.Paths.Map() {
		for method := range item.Operations() {
			all[method+" "+path] = true
		}
	}
	return all
}

func options() *openapi3filter.Options {
	return &openapi3filter.Options{
		MultiError: true, IncludeResponseStatus: true, SkipSettingDefaults: true,
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}
}

// finding is one thing in which an exchange differs from the description.
type finding struct {
	side string // request or response
	at   string // where in the body, or the parameter; "" is all of it
	rule string // the schema's keyword, or what is wrong with the whole
}

// findings takes an error of the validation apart.
func findings(side string, err error) []finding {
	var out []finding
	switch e := err.(type) { // a tree is walked, nothing is looked for in it
	case nil:
	case openapi3.MultiError:
		for _, one := range e {
			out = append(out, findings(side, one)...)
		}
	case *openapi3filter.RequestError:
		out = within(side, e.Parameter, e.Reason, e.Err)
	case *openapi3filter.ResponseError:
		out = within(side, nil, e.Reason, e.Err)
	case *openapi3.SchemaError:
		if inner := findings(side, e.Origin); len(inner) > 0 {
			return inner
		}
		out = []finding{{side, pointer(e.JSONPointer()), e.SchemaField}}
	default:
		if inner := errors.Unwrap(err); inner != nil {
			return findings(side, inner)
		}
		out = []finding{{side, "", err.Error()}}
	}
	return out
}

func within(side string, parameter *openapi3.Parameter, reason string, err error) []finding {
	if err == nil {
		return []finding{{side, "", reason}}
	}
	out := findings(side, err)
	for i := range out {
		if parameter != nil {
			out[i].at = "?" + parameter.Name
		}
	}
	return out
}

// pointer is where in a body, with * for any element of a list.
func pointer(path []string) string {
	for i, part := range path {
		if strings.Trim(part, "0123456789") == "" {
			path[i] = "*"
		}
	}
	return "/" + strings.Join(path, "/")
}
