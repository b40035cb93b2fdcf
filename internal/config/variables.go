package config

import (
	"maps"
	"slices"
	"strings"
)

// variablePrefix returns the prefix of a setting's variable, or "" for other variables.
func variablePrefix(name string) string {
	for _, prefix := range []string{"HCLOUD_", "ROBOT_"} {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

// UnknownVariables returns a warning for each variable in environ, a list as returned by
// os.Environ, that looks like a setting and has no effect, such as a mistyped variable or one of
// another program. It is not an error, because a working cluster must not lose its controllers
// over a variable without effect. A value is never repeated, since it might be a secret.
func UnknownVariables(environ []string) []Warning {
	set := map[string]bool{}
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); value != "" && variablePrefix(name) != "" {
			set[name] = true
		}
	}
	known := knownVariables()
	var warnings []Warning
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(known, name) && !ofService(name, set) {
			problem := "is not known and has no effect; " + advice(name, known)
			warnings = append(warnings, Warning{Field: name, Problem: problem})
		}
	}
	return warnings
}

// knownVariables returns the variables that have an effect.
func knownVariables() []string {
	var names []string
	for _, row := range settings(&loader{}) {
		if variablePrefix(row.env) != "" {
			names = append(names, row.env)
		}
	}
	return names
}

// advice suggests the nearest known variable with the same prefix, by the rest of the name.
func advice(name string, known []string) string {
	prefix := variablePrefix(name)
	var endings []string
	for _, k := range known {
		if ending, same := strings.CutPrefix(k, prefix); same {
			endings = append(endings, ending)
		}
	}
	if nearest := nearestKey(strings.TrimPrefix(name, prefix), endings); nearest != "" {
		return "did you mean " + prefix + nearest + "?"
	}
	return "unset it; docs/reference/configuration.md lists those that have one"
}

// ofService reports whether a variable describes a Service to the pods of its namespace, such as
// hcloud-csi's. Each Service has several, and always <NAME>_SERVICE_HOST.
// https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
func ofService(name string, set map[string]bool) bool {
	for other := range set {
		service, is := strings.CutSuffix(other, "_SERVICE_HOST")
		if is && (name == service+"_PORT" || strings.HasPrefix(name, service+"_PORT_") ||
			strings.HasPrefix(name, service+"_SERVICE_")) {
			return true
		}
	}
	return false
}
