package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/underlay-ccm/underlay/internal/config"
)

const (
	repository     = "../../.."
	ccmFolder      = repository + "/deploy/ccm"
	agentFolder    = repository + "/deploy/agent"
	metalFolder    = repository + "/deploy/metal"
	ccmRoles       = ccmFolder + "/rbac.yaml"
	agentRoles     = agentFolder + "/rbac.yaml"
	directoryRoles = ccmFolder + "/directory.yaml"
	secretExample  = ccmFolder + "/secret.yaml.example"

	// patience limits waits: what takes longer doesn't happen.
	patience = 3 * time.Minute
)

// decode decodes the documents of a manifest. An unknown or duplicate key is an error.
func decode(content []byte) ([]runtime.Object, error) {
	strict := serializer.NewCodecFactory(scheme.Scheme,
		serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var objects []runtime.Object
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}

func decodeFile(t *testing.T, path string) []runtime.Object {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(content)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return objects
}

// shipped are the controller manager's manifests.
func shipped(t *testing.T) []runtime.Object { return shippedIn(t, ccmFolder) }

// shippedIn returns all objects that "kubectl apply -R -f" would apply of a folder.
func shippedIn(t *testing.T, folder string) []runtime.Object {
	t.Helper()
	var objects []runtime.Object
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			objects = append(objects, decodeFile(t, path)...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// only returns the single object of its kind.
func only[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	var found []T
	for _, object := range objects {
		if wanted, ok := object.(T); ok {
			found = append(found, wanted)
		}
	}
	if len(found) != 1 {
		t.Fatalf("found %d of %T, want one", len(found), *new(T))
	}
	return found[0]
}

// TestRenderingsDifferInSettingsAlone: permissions and policies are the same for all kinds of
// machines.
func TestRenderingsDifferInSettingsAlone(t *testing.T) {
	name := func(object runtime.Object) string {
		return object.GetObjectKind().GroupVersionKind().Kind + " " + object.(metav1.Object).GetName()
	}
	onMetal := map[string]runtime.Object{}
	for _, object := range shippedIn(t, metalFolder) {
		onMetal[name(object)] = object
	}
	objects := slices.Concat(shipped(t), shippedIn(t, agentFolder))
	if len(objects) != len(onMetal) {
		t.Errorf("%d objects on metal, %d on the cloud", len(onMetal), len(objects))
	}
	for _, object := range objects {
		switch object.(type) {
		case *corev1.ConfigMap, *appsv1.Deployment, *appsv1.DaemonSet:
			continue
		}
		if !equality.Semantic.DeepEqual(object, onMetal[name(object)]) {
			t.Errorf("%s isn't the same on metal", name(object))
		}
	}
}

// A folder that is applied as a whole must not replace a token by a placeholder,
// and a placeholder must not be sent to the cloud.
func TestNoSecretIsShipped(t *testing.T) {
	for _, object := range slices.Concat(shipped(t), shippedIn(t, agentFolder), shippedIn(t,
		metalFolder)) {
		if secret, ok := object.(*corev1.Secret); ok {
			t.Errorf("Secret %s would be applied with the folder", secret.Name)
		}
	}
	secret := only[*corev1.Secret](t, decodeFile(t, secretExample))
	token, ok := secret.StringData["token"]
	if !ok || len(secret.StringData)+len(secret.Data) != 1 {
		t.Fatalf("the example has other keys than token: %v", secret.StringData)
	}
	if _, err := config.NewToken(token); err == nil {
		t.Errorf("the placeholder %q would be taken for a token", token)
	}
}

// A budget that selects no pod, or protects the only one, would show only when a node is drained.
func TestDisruptionBudgetSelectsTheDeployment(t *testing.T) {
	budget := only[*policyv1.PodDisruptionBudget](t, shipped(t)).Spec
	pods := only[*appsv1.Deployment](t, shipped(t)).Spec.Selector
	if !equality.Semantic.DeepEqual(budget.Selector, pods) || budget.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the budget is %+v, the Deployment has the pods %v", budget, pods)
	}
}
