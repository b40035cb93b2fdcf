package docs

import (
	"go/ast"
	"go/constant"
	"go/types"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// use is a place in the code with a reason.
type use struct {
	where string
	// event is the type of the Event that is certainly sent with it; empty: unknown, it may be
	// passed in a variable.
	event string
}

// scan contains the facts from the shipped source that documents must list.
type scan struct {
	reasons    map[string][]use
	conditions map[string]bool // types of them
	variables  map[string]bool // of the environment, by name
	metrics    map[string]bool // folders that register some
	wrong      []string
}

var (
	reasonName = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	// reasonConstant are names of constants that hold reasons.
	reasonConstant = regexp.MustCompile(`^([rR]eason|event|Event)[A-Z]`)
	newMetric      = regexp.MustCompile(`^(With$|New(Counter|Gauge|Histogram|Summary|TimingHistogram|Desc))`)
	lookup         = regexp.MustCompile(`^(?i:getenv|lookupenv)$`)
	// silent only read: their reasons are printed to the terminal.
	silent = regexp.MustCompile(`^(internal/doctor|internal/survey|cmd/underlayctl)$`)
)

// facts type-checks the shipped source, without the simulator and tests.
func facts(t *testing.T) *scan {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.LoadSyntax, Dir: root, Context: t.Context(),
	},
		"./addresses/...", "./cmd/...", "./internal/...", "./ipam/...", "./lb/...", "./policy/...", "./routes/...")
	if err != nil || len(loaded) < 30 {
		t.Fatalf("%d packages: %v", len(loaded), err)
	}
	s := &scan{
		reasons: map[string][]use{}, conditions: map[string]bool{}, variables: map[string]bool{},
		metrics: map[string]bool{},
	}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			t.Fatal(p.Errors)
		}
		if strings.HasSuffix(p.Name, "test") { // helpers of tests
			continue
		}
		in := inspection{s, p.TypesInfo, strings.TrimPrefix(p.PkgPath, "github.com/underlay-ccm/underlay/")}
		for _, file := range p.Syntax {
			ast.Inspect(file, in.node)
		}
	}
	return s
}

// inspection is that of one package.
type inspection struct {
	*scan
	info   *types.Info
	folder string
}

// text returns the value of a constant expression; empty if it isn't constant.
func (in inspection) text(e ast.Expr) string {
	if value := in.info.Types[e].Value; value != nil && value.Kind() == constant.String {
		return constant.StringVal(value)
	}
	return ""
}

func (in inspection) note(reason, event string) {
	if reasonName.MatchString(reason) {
		in.reasons[reason] = append(in.reasons[reason], use{in.folder, event})
	}
}

func (in inspection) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		in.call(n)
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" && !silent.MatchString(in.folder) {
			in.note(in.text(n.Value), "")
		}
	case *ast.Ident:
		declared, ok := in.info.Defs[n].(*types.Const)
		if !ok || declared.Val().Kind() != constant.String {
			return true
		}
		value, kind := constant.StringVal(declared.Val()), declared.Type().String()
		isReason := reasonConstant.MatchString(n.Name) || n.IsExported() && strings.HasSuffix(kind, "Reason")
		if isReason && !silent.MatchString(in.folder) {
			in.note(value, "")
		}
		named := strings.HasSuffix(kind, "NodeConditionType") || strings.HasPrefix(strings.ToLower(n.Name), "condition")
		if named && strings.HasPrefix(value, "underlay.dev/") {
			in.conditions[value] = true
		}
	}
	return true
}

// call reads arguments, by the names of their parameters.
func (in inspection) call(call *ast.CallExpr) {
	function, ok := in.info.TypeOf(call.Fun).(*types.Signature)
	if !ok {
		return
	}
	name := ""
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
		if of, ok := fun.X.(*ast.Ident); ok && newMetric.MatchString(name) &&
			in.folder != "internal/promauto" && slices.Contains([]string{"metrics", "prometheus", "promauto"}, of.Name) {
			in.metrics[in.folder] = true
		}
	}
	if lookup.MatchString(name) && len(call.Args) == 1 {
		in.variables[in.text(call.Args[0])] = true
	}
	given := map[string]string{}
	for i := range min(function.Params().Len(), len(call.Args)) {
		given[function.Params().At(i).Name()] = in.text(call.Args[i])
	}
	event, isEvent := given["eventtype"]
	reason, hasReason := given["reason"]
	switch {
	case isEvent && event == "":
		in.wrong = append(in.wrong, in.folder+": an Event whose type is no constant")
	case isEvent && reason == "" && event != "Warning":
		in.wrong = append(in.wrong, in.folder+": an Event of type "+event+" whose reason depends on something: the page can't be compared with it")
	}
	if hasReason {
		in.note(reason, event)
	}
}
