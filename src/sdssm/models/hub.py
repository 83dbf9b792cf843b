"""Models on the Hugging Face Hub: a folder with the weights, the settings, the task and a model card.

Only data is downloaded, never code. A model that is not part of this package is imported from what is installed here,
and only if the caller trusts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import torch

from sdssm.checksums import encode_json_with_checksum
from sdssm.errors import ModelError, OutputError, first_line, format_value
from sdssm.extras import import_extra
from sdssm.files import format_path
from sdssm.models.evidence import find_evidence
from sdssm.models.import_paths import is_file_path
from sdssm.models.model_card import make_card
from sdssm.models.model_folder import (
    CARD_FILE,
    CERTIFICATE_FILE,
    EVALUATION_FILE,
    EVIDENCE_FILE,
    TASK_FILE,
    read_model_config,
    write_model_folder,
)
from sdssm.models.registry import registered_entry
from sdssm.models.saved import load_model
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE
from sdssm.models.token_model import TokenModel

#: What is downloaded of a repository.
DOWNLOADED = (CONFIG_FILE, WEIGHTS_FILE, TASK_FILE, EVALUATION_FILE, CERTIFICATE_FILE, EVIDENCE_FILE)
#: The name of a repository: its owner and its name, or its name alone.
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)

Result = TypeVar("Result")


def load_pretrained(
    source: str | Path, *, revision: str | None = None, trust: bool = False, device: str | torch.device = "cpu"
) -> TokenModel:
    """Load a model from a folder here, or else from a repository of the Hugging Face Hub."""
    folder = Path(source)
    if str(source) and folder.is_dir():
        if revision is not None:
            raise ModelError(f"{format_path(folder)} is a folder, which has no revisions; leave revision out")
        return load_model(folder, device=device, trust=trust)
    if not isinstance(source, str) or not _REPOSITORY.fullmatch(source):
        raise ModelError(
            f"there is no folder {format_value(str(source))}; pass a folder that holds a model, or the name of a "
            "repository, such as 'owner/name'"
        )
    hub = import_extra("huggingface_hub", "loading a model from the Hugging Face Hub")

    def download() -> str:
        path: str = hub.snapshot_download(repo_id=source, revision=revision, allow_patterns=list(DOWNLOADED))
        return path

    problem = f"{format_value(source)} is no folder here, and cannot be loaded from the Hugging Face Hub"
    folder = Path(_call_hub(download, lambda reason: ModelError(f"{problem}: {reason}")))
    _refuse_code_in_files(folder, source)
    return load_model(folder, device=device, trust=trust)


def save_pretrained(
    model: TokenModel,
    folder: str | Path,
    *,
    overwrite: bool = False,
    license: str | None = None,  # noqa: A002  # as it is called there
    repository: str | None = None,
) -> None:
    """Write what `model.save` writes, what is known about the model, and a model card."""
    evidence = find_evidence(model)
    files = {CARD_FILE: make_card(model, evidence, license=license, repository=repository).encode()}
    for name, values in ((EVALUATION_FILE, evidence.evaluation), (CERTIFICATE_FILE, evidence.certificate)):
        if values is not None:
            files[name] = encode_json_with_checksum(dict(values))
    config = model.to_config()
    if repository is not None and is_file_path(config["model"].get("import_path")):
        config["model"]["import_path"] = None  # a file of this machine, whose path concerns no one else
    write_model_folder(
        Path(folder), config, model.to_safetensors(), model.task, overwrite=overwrite, descriptions=files
    )


def push_pretrained(
    model: TokenModel,
    repo_id: str,
    *,
    private: bool | None = None,
    commit_message: str | None = None,
    revision: str | None = None,
    license: str | None = None,  # noqa: A002  # as it is called there
) -> str:
    """Create a repository on the Hugging Face Hub if there is none, upload the model, and return its address."""
    if not isinstance(repo_id, str) or not _REPOSITORY.fullmatch(repo_id):
        raise OutputError(f"{format_value(repo_id)} is not the name of a repository; write it as 'owner/name'")
    hub = import_extra("huggingface_hub", "uploading a model to the Hugging Face Hub")
    message = f"Upload {model.name}" if commit_message is None else commit_message
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        save_pretrained(model, folder, license=license, repository=repo_id)

        def upload() -> str:
            api = hub.HfApi()
            api.create_repo(repo_id=repo_id, private=private, exist_ok=True, repo_type="model")
            info = api.upload_folder(
                repo_id=repo_id,
                folder_path=str(folder),
                commit_message=message,
                revision=revision,
                repo_type="model",
            )
            return str(getattr(info, "commit_url", info))

        problem = f"the model cannot be uploaded to {repo_id}"
        return _call_hub(upload, lambda reason: OutputError(f"{problem}: {reason}"))


def _refuse_code_in_files(folder: Path, source: str) -> None:
    """Raise an error if a downloaded model names a Python file: no file of this machine is meant."""
    config = read_model_config(folder)
    name, path = str(config["model"].get("name")), config["model"].get("import_path")
    if isinstance(path, str) and is_file_path(path) and registered_entry(name, path) is None:
        raise ModelError(
            f"{source} holds a model of the file {format_value(path)}, and code is never downloaded; define the model "
            f"here and register it as {name!r}"
        )


def _call_hub(call: Callable[[], Result], make_error: Callable[[str], Exception]) -> Result:
    """Call the Hub; an error of it, or of the network, becomes one line."""
    try:
        return call()
    except Exception as error:  # of the Hub, of its HTTP library, of the disk
        raise make_error(f"{type(error).__name__}: {first_line(error, 200)}") from error
