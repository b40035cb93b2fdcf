package docs

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// use is what the code does with a reason.
type use struct {
	where string
	// event is the type of the Event that is certainly sent with it; empty: none
	// is known, it may be given through a variable.
	event string
}

var (
	reasonName = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	// constant are names of constants that hold reasons.
	constant = regexp.MustCompile(`^([rR]eason|event|Event)[A-Z]`)
)

// silent only read: what they call a reason is for the terminal.
var silent = []string{"internal/doctor", "internal/survey", "cmd/underlayctl"}

// scan looks for reasons in the files of one folder.
type scan struct {
	// constants are the values of those that may be reasons, by their name, with
	// their package's where they are exported.
	constants map[string]string
	// takers are functions with a parameter called reason: which one it is.
	takers map[string]int
	found  map[string][]use
	wrong  []string
}

// reasonsIn finds every reason that the code knows: constants called reason,
// event or of a type that ends with Reason, what is given as a reason to a function or put
// into a field Reason, and what Events are sent with.
func reasonsIn(files []source) (map[string][]use, []string) {
	s := scan{constants: map[string]string{}, takers: map[string]int{}, found: map[string][]use{}}
	for _, f := range files {
		s.declarations(f)
	}
	for _, f := range files {
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				s.call(f, n)
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" && !slices.Contains(silent, f.folder) {
					s.note(text(n.Value), use{where: f.path})
				}
			}
			return true
		})
	}
	return s.found, s.wrong
}

// text is what a string literal says.
func text(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	value, _ := strconv.Unquote(literal.Value)
	return value
}

func (s *scan) note(reason string, u use) {
	if reasonName.MatchString(reason) {
		s.found[reason] = append(s.found[reason], u)
	}
}

// declarations collects the constants and the functions that take a reason.
func (s *scan) declarations(f source) {
	ast.Inspect(f.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			typed, _ := n.Type.(*ast.Ident)
			for i, name := range n.Names {
				if i >= len(n.Values) || !constant.MatchString(name.Name) && (typed == nil || !strings.HasSuffix(typed.Name, "Reason")) {
					continue
				}
				value := text(n.Values[i])
				s.constants[f.folder+" "+name.Name] = value
				if name.IsExported() {
					s.constants[f.tree.Name.Name+"."+name.Name] = value
				}
				if !slices.Contains(silent, f.folder) {
					s.note(value, use{where: f.path})
				}
			}
		case *ast.FuncDecl:
			at := 0
			for _, field := range n.Type.Params.List {
				for _, name := range field.Names {
					if name.Name == "reason" {
						s.takers[f.folder+" "+n.Name.Name] = at
					}
					at++
				}
			}
		}
		return true
	})
}

// valueOf is what an expression of a file certainly is; empty: it depends.
func (s *scan) valueOf(f source, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return s.constants[f.folder+" "+e.Name]
	case *ast.SelectorExpr:
		if in, ok := e.X.(*ast.Ident); ok {
			return s.constants[in.Name+"."+e.Sel.Name]
		}
	case *ast.CallExpr: // string(routes.NotAttached)
		if len(e.Args) == 1 {
			return s.valueOf(f, e.Args[0])
		}
	}
	return text(e)
}

func (s *scan) call(f source, call *ast.CallExpr) {
	name := ""
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
	}
	if at, ok := s.takers[f.folder+" "+name]; ok && at < len(call.Args) {
		s.note(text(call.Args[at]), use{where: f.path})
	}
	at, isEvent := map[string]int{"Event": 1, "Eventf": 1, "AnnotatedEventf": 2}[name]
	if !isEvent || len(call.Args) < at+3 {
		return
	}
	kind, ok := call.Args[at].(*ast.SelectorExpr)
	if !ok || !strings.HasPrefix(kind.Sel.Name, "EventType") {
		s.wrong = append(s.wrong, f.path+": an Event whose type is no constant of the API")
		return
	}
	event := strings.TrimPrefix(kind.Sel.Name, "EventType")
	reason := s.valueOf(f, call.Args[at+1])
	s.note(reason, use{f.path, event})
	if reason == "" && event != "Warning" {
		s.wrong = append(s.wrong, f.path+": an Event of type "+event+" whose reason depends on something: the table can't be compared with it")
	}
}

// compareReasons says where code and tables differ.
func compareReasons(found map[string][]use, wrong []string, tables []object) []string {
	problems := slices.Clone(wrong)
	listed := map[string]map[string]bool{} // the types of its Events
	for _, o := range tables {
		for _, r := range o.told {
			if listed[r.reason] == nil {
				listed[r.reason] = map[string]bool{}
			}
			listed[r.reason][r.event] = true
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(found)) {
		if listed[reason] == nil {
			problems = append(problems, fmt.Sprintf("%s: reason %s is in no table of test/checks/docs: say when it is given and what to do", found[reason][0].where, reason))
			continue
		}
		for _, u := range found[reason] {
			if u.event != "" && !listed[reason][u.event] {
				problems = append(problems, fmt.Sprintf("%s: reason %s is sent as %s, the table says otherwise", u.where, reason, u.event))
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(listed)) {
		uses := found[reason]
		if len(uses) == 0 {
			problems = append(problems, fmt.Sprintf("reason %s is in a table of test/checks/docs, and nobody gives it", reason))
			continue
		}
		normal := slices.ContainsFunc(uses, func(u use) bool { return u.event == "Normal" })
		if listed[reason]["Normal"] && !normal {
			problems = append(problems, fmt.Sprintf("reason %s is Normal in the table, and nobody sends it so", reason))
		}
	}
	return problems
}

// conditionsIn are the types of conditions that the code names as its own.
func conditionsIn(files []source) []string {
	found := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for i, name := range spec.Names {
					kind, typed := spec.Type.(*ast.SelectorExpr)
					is := typed && kind.Sel.Name == "NodeConditionType" || strings.HasPrefix(strings.ToLower(name.Name), "condition")
					if is && i < len(spec.Values) && strings.HasPrefix(text(spec.Values[i]), "underlay.dev/") {
						found[text(spec.Values[i])] = true
					}
				}
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// TestReasonsAreFound shows what the search finds, and that differences are told.
func TestReasonsAreFound(t *testing.T) {
	files := []source{parsed(t, "a", `package a
const reasonA = "Alpha"
type Reason string
const Beta Reason = "Beta"
func tell(n int, reason, text string) {}
func f() {
	tell(1, "Gamma", "Not")
	r.Event(o, corev1.EventTypeNormal, "Delta", "Not")
	r.Eventf(o, corev1.EventTypeWarning, reasonA, "Not %d", 1)
	r.Event(o, corev1.EventTypeWarning, string(Beta), "Not")
	r.Event(o, corev1.EventTypeWarning, anything, "Not")
	_ = Condition{Type: "Not", Reason: "Epsilon"}
}`), parsed(t, "internal/doctor", `package doctor
const reasonZ = "Silent"
`)}
	found, wrong := reasonsIn(files)
	if got := strings.Join(slices.Sorted(maps.Keys(found)), " "); got != "Alpha Beta Delta Epsilon Gamma" || len(wrong) > 0 {
		t.Errorf("found %s, wrong %q", got, wrong)
	}
	tables := []object{{told: []told{
		{reason: "Alpha", event: "Warning"},
		{reason: "Beta", event: "Normal"},
		{reason: "Delta", event: "Normal"},
		{reason: "Epsilon"},
		{reason: "Zeta"},
	}}}
	got := strings.Join(compareReasons(found, wrong, tables), "\n")
	for _, want := range []string{"Gamma is in no table", "Beta is sent as Warning", "Beta is Normal in the table", "Zeta is in a table"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not told of", want)
		}
	}
	if strings.Count(got, "\n") != 3 {
		t.Errorf("told: %s", got)
	}
	dynamic := parsed(t, "a", "package a\nfunc f() { r.Event(o, corev1.EventTypeNormal, anything, t); r.Event(o, kind, x, t) }")
	if _, wrong := reasonsIn([]source{dynamic}); len(wrong) != 2 {
		t.Errorf("Events that can't be compared: %q", wrong)
	}
}
