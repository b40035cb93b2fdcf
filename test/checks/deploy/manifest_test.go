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
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/directory"
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
)

// decode reads the documents of a manifest. A key that the kind doesn't have, or
// that stands there twice, is an error.
func decode(content []byte) ([]runtime.Object, error) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
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

// shipped are the controller manager's.
func shipped(t *testing.T) []runtime.Object { return shippedIn(t, ccmFolder) }

// shippedIn are all objects that "kubectl apply -R -f" would apply of a folder.
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

// only is the one object of its kind.
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

func TestDecodingIsStrict(t *testing.T) {
	const good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for name, bad := range map[string]string{
		"an unknown key":         good + "dat: {a: b}\n",
		"a key twice":            good + "data: {a: b}\ndata: {a: c}\n",
		"a kind that is unknown": "apiVersion: v1\nkind: ConfigMup\n",
		"the second document":    good + "---\n" + good + "spec: {}\n",
	} {
		if _, err := decode([]byte(bad)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if objects, err := decode([]byte(good + "---\n" + good)); err != nil || len(objects) != 2 {
		t.Errorf("two good documents: %d objects, %v", len(objects), err)
	}
}

func TestEveryObjectHasItsPlace(t *testing.T) {
	clusterWide := []string{"Namespace", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
	for _, object := range slices.Concat(shipped(t), shippedIn(t, agentFolder), shippedIn(t, metalFolder)) {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		meta := object.(metav1.Object)
		want := "kube-system"
		switch {
		case slices.Contains(clusterWide, kind):
			want = ""
		case strings.HasPrefix(meta.GetName(), "underlay-directory-"):
			want = directory.Namespace
		case meta.GetName() == "underlay-agent" && (kind == "Role" || kind == "RoleBinding"):
			want = "default" // where Events about Nodes lie
		}
		if meta.GetNamespace() != want {
			t.Errorf("%s %s: namespace %q, want %q", kind, meta.GetName(), meta.GetNamespace(), want)
		}
		if meta.GetLabels()["app.kubernetes.io/part-of"] != "underlay" {
			t.Errorf("%s %s isn't labeled as part of underlay: %v", kind, meta.GetName(), meta.GetLabels())
		}
	}
}

// TestRenderingsDifferInSettingsAlone: permissions and policies are the same,
// whatever the machines are.
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
	for _, object := range slices.Concat(shipped(t), shippedIn(t, agentFolder), shippedIn(t, metalFolder)) {
		if secret, ok := object.(*corev1.Secret); ok {
			t.Errorf("Secret %s would be applied with the folder", secret.Name)
		}
	}
	secret := only[*corev1.Secret](t, decodeFile(t, secretExample))
	pod := only[*appsv1.Deployment](t, shipped(t)).Spec.Template.Spec
	if !mounts(pod, func(v corev1.VolumeSource) bool { return v.Secret != nil && v.Secret.SecretName == secret.Name }) {
		t.Errorf("no container mounts Secret %s", secret.Name)
	}
	token, ok := secret.StringData["token"]
	if !ok || len(secret.StringData)+len(secret.Data) != 1 {
		t.Fatalf("the example has other keys than token: %v", secret.StringData)
	}
	if _, err := config.NewToken(token); err == nil {
		t.Errorf("the placeholder %q would be taken for a token", token)
	}
}

func TestDisruptionBudgetSelectsTheDeployment(t *testing.T) {
	objects := shipped(t)
	budget := only[*policyv1.PodDisruptionBudget](t, objects)
	deployment := only[*appsv1.Deployment](t, objects)
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if pods := deployment.Spec.Template.Labels; selector.Empty() || !selector.Matches(labels.Set(pods)) {
		t.Errorf("selector %s doesn't match the pods' labels %v", selector, pods)
	}
	// minAvailable would block every drain of a cluster with one replica.
	if budget.Spec.MaxUnavailable == nil || budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("maxUnavailable is %v, want 1", budget.Spec.MaxUnavailable)
	}
}

// mounts reports whether a container mounts a volume of that kind.
func mounts(pod corev1.PodSpec, wanted func(corev1.VolumeSource) bool) bool {
	for _, volume := range pod.Volumes {
		if !wanted(volume.VolumeSource) {
			continue
		}
		for _, container := range pod.Containers {
			for _, mount := range container.VolumeMounts {
				if mount.Name == volume.Name {
					return true
				}
			}
		}
	}
	return false
}

// flagsOf are the arguments as names and values.
func flagsOf(t *testing.T, args []string) map[string]string {
	t.Helper()
	flags := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || !strings.HasPrefix(name, "--") {
			t.Fatalf("argument %q isn't of the form --flag=value", arg)
		}
		if _, twice := flags[name]; twice {
			t.Fatalf("flag %s is given twice", name)
		}
		flags[name] = value
	}
	return flags
}
